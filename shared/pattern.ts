/**
 * Whether a name matches a pattern. `*` stands for any text without a slash: "python:*" must not match
 * an image of the registry python:5000. Takes time linear in both lengths, even for a hostile pattern.
 */
export function matchesPattern(pattern: string, name: string): boolean {
  const [patterns, parts] = [pattern.split("/"), name.split("/")];
  return (
    patterns.length === parts.length && patterns.every((part, at) => matchesPart(part, parts[at]!))
  );
}

function matchesPart(pattern: string, text: string): boolean {
  const [start = "", ...pieces] = pattern.split("*");
  const end = pieces.pop();
  if (end === undefined) return text === start;
  if (!text.startsWith(start) || !text.slice(start.length).endsWith(end)) return false;
  let left = text.slice(start.length, text.length - end.length);
  for (const piece of pieces) {
    const at = left.indexOf(piece);
    if (at < 0) return false;
    left = left.slice(at + piece.length);
  }
  return true;
}
