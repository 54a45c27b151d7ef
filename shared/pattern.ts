/**
 * Whether a name is of a pattern in which `*` stands for any text without a slash: "python:*" is not
 * to take an image of a registry python:5000. In time linear in both, whoever wrote the pattern.
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
