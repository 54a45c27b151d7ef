/** A number of bytes in the units that show it exactly and shortest: "10 GiB", "500 MB", "1001 B". */
export function sizeText(bytes: number): string {
  const [binary, decimal] = [inUnits(bytes, 1024, "iB"), inUnits(bytes, 1000, "B")];
  return binary.length < decimal.length ? binary : decimal;
}

function inUnits(bytes: number, base: number, end: string): string {
  let [value, at] = [bytes, 0];
  while (value > 0 && value % base === 0 && at < 4) [value, at] = [value / base, at + 1];
  return at === 0 ? `${value} B` : `${value} ${"KMGT"[at - 1]}${end}`;
}

/** "10 GiB", "10g", "500 MB", "1000" as bytes; undefined if it is none of these. */
export function parseSize(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?) ?([KMGT]?)(i?)(B?)$/i.exec(text.trim());
  if (!match) return undefined;
  const [, count, letter = "", i, b] = match;
  // "10 GB" is decimal, as disks are sold; "10 GiB" and "10g", as in the configuration, are not.
  const base = b !== "" && i === "" ? 1000 : 1024;
  return Math.round(Number(count) * base ** " KMGT".indexOf(letter.toUpperCase() || " "));
}
