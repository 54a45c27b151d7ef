/** Text in the cells of a terminal: most characters take one, those of East Asia and emoji two, marks none. */
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const without = /[\p{M}\u200b-\u200f\u202a-\u202e\u2060-\u2069]/u;
// oxlint-disable-next-line no-control-regex -- control characters take one cell too
const plain = /^[\x00-\u02ff]*$/;

/** Whether each character takes one cell. */
export const isPlain = (text: string): boolean => plain.test(text);

export const cellsOf = (character: string): number =>
  wide.test(character) ? 2 : without.test(character) ? 0 : 1;

/** Where the rows of a text begin, on a screen of this width; the first is 0. */
export function rowStarts(text: string, columns: number): number[] {
  const starts = [0];
  if (isPlain(text)) {
    for (let at = columns; at < text.length; at += columns) starts.push(at);
    return starts;
  }
  let used = 0;
  let at = 0;
  for (const character of text) {
    const cells = cellsOf(character);
    if (used + cells > columns) {
      starts.push(at);
      used = 0;
    }
    used += cells;
    at += character.length;
  }
  return starts;
}

export function widthOf(text: string): number {
  if (isPlain(text)) return text.length;
  let width = 0;
  for (const character of text) width += cellsOf(character);
  return width;
}
