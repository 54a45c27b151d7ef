/** Control characters, and marks that change the direction of the text around a name. */
const forbidden = /[\p{Cc}\\\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** What `isArtifactName` asks for. */
export const artifactNameRule =
  "must be a relative path without '..', control characters and marks of text direction";

/**
 * Whether a name stays inside its job's artifacts and is safe in a header, a URL and a log;
 * agent/python/collector.py agrees. See docs/contract.md 6.22.
 */
export function isArtifactName(name: string): boolean {
  return (
    name.length > 0 &&
    name.isWellFormed() &&
    !forbidden.test(name) &&
    name.split("/").every((part) => part !== "" && part !== "." && part !== "..")
  );
}
