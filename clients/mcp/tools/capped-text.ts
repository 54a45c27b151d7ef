/** Characters that a result shows of a job's text, all of it together. */
export const maxTextLength = 20_000;

/** A text of at most `length` characters: as it is, or its head and tail with a note between them. */
export function headAndTail(text: string, length: number): string {
  if (text.length <= length) return text;
  const note = `\n[… ${text.length - length} or more characters are left out here …]\n`;
  const half = Math.max(0, Math.floor((length - note.length) / 2));
  return [text.slice(0, half), note, text.slice(text.length - half)]
    .map((part) => part.toWellFormed())
    .join("");
}

/**
 * Shortens texts so that all together have at most `length` characters. Short ones stay whole; the others
 * get equal shares of what is left.
 */
export function shareLength<Name extends string>(
  texts: Record<Name, string>,
  length: number,
): Record<Name, string> {
  const names = (Object.keys(texts) as Name[]).toSorted(
    (a, b) => texts[a].length - texts[b].length,
  );
  const shortened = { ...texts };
  let left = length;
  for (const [i, name] of names.entries()) {
    shortened[name] = headAndTail(texts[name], Math.floor(left / (names.length - i)));
    left -= shortened[name].length;
  }
  return shortened;
}
