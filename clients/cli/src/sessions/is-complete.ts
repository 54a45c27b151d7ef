/** Strings, comments and brackets of Python; a string that does not end is open. */
const tokens =
  /(?<string>("""|'''|"|')(?:\\[^]|(?!\2)[^])*(?<end>\2)?)|(?<comment>#.*)|(?<open>[([{])|(?<close>[)\]}])/g;

/**
 * Whether lines of Python can be run, as a prompt decides it: no bracket or string is open, and a block (an
 * indented line, or one that ends with a colon) is ended by an empty line.
 */
export function isComplete(lines: readonly string[]): boolean {
  const text = lines.join("\n");
  let depth = 0;
  /** The text outside brackets, without strings and comments. */
  let bare = "";
  let from = 0;
  for (const match of text.matchAll(tokens)) {
    const { string, end, open, close } = match.groups!;
    if (depth === 0) bare += text.slice(from, match.index);
    from = match.index + match[0].length;
    if (string !== undefined) {
      const isLong = /^("""|''')/.test(string);
      if (end === undefined && isLong) return false;
      bare += "s";
    }
    if (open !== undefined) depth++;
    if (close !== undefined) depth = Math.max(0, depth - 1);
  }
  bare += text.slice(from);
  if (depth > 0 || bare.endsWith("\\")) return false;
  const isBlock = /:[ \t]*$/m.test(bare) || /^@/m.test(bare);
  return !isBlock || lines.at(-1)!.trim() === "";
}
