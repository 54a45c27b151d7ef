/** Splits arguments as a shell does: at blanks that are neither quoted nor after a backslash. */
export function splitArguments(text: string): { args: string[] } | { problem: string } {
  const args: string[] = [];
  let at = 0;
  while (at < text.length) {
    if (/\s/.test(text[at]!)) {
      at += 1;
      continue;
    }
    let word = "";
    while (at < text.length && !/\s/.test(text[at]!)) {
      const char = text[at]!;
      if (char === "'" || char === '"') {
        const end = endOfQuote(text, at);
        if (end === -1) return { problem: `The arguments have a ${char} that is not closed.` };
        const inside = text.slice(at + 1, end);
        word += char === "'" ? inside : inside.replaceAll(/\\(["\\])/g, "$1");
        at = end + 1;
      } else if (char === "\\" && at + 1 < text.length) {
        word += text[at + 1]!;
        at += 2;
      } else {
        word += char;
        at += 1;
      }
    }
    args.push(word);
  }
  return { args };
}

function endOfQuote(text: string, from: number): number {
  const quote = text[from];
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === quote) return at;
    if (text[at] === "\\" && quote === '"') at += 1;
  }
  return -1;
}

/** A text that `splitArguments` splits into these arguments. */
export const joinArguments = (args: readonly string[]): string =>
  args
    .map((arg) => (/^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", `'"'"'`)}'`))
    .join(" ");
