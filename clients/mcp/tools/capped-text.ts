/** Characters that a result shows of a job's text, all of it together. */
export const maxTextLength = 20_000;

/** A text of at most `length` characters: as it is, or its head and tail with a note between them. */
export function headAndTail(text: string, length: number): string {
  if (text.length <= length) return text;
  const note = `\n[… ${text.length - length} or more characters are left out here …]\n`;
  const half = Math.max(0, Math.floor((length - note.length) / 2));
  const [head, tail] = [half, text.length - half];
  // Neither the end of the head nor the beginning of the tail may be half of a character.
  const shown = [
    text.slice(0, head - isInside(text, head)),
    text.slice(tail + isInside(text, tail)),
  ];
  return shown.join(note).toWellFormed();
}

/** 1 if the place is between the two units of one character. */
function isInside(text: string, at: number): number {
  return (text.codePointAt(at - 1) ?? 0) > 0xffff ? 1 : 0;
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
