/**
 * Whether a name stays inside its job's artifacts: a relative path of plain components, without
 * NUL and other control characters. See docs/contract.md 6.22.
 */
export function isArtifactName(name: string): boolean {
  return (
    name.length > 0 &&
    name.isWellFormed() &&
    !/[\p{Cc}\\]/u.test(name) &&
    name.split("/").every((part) => part !== "" && part !== "." && part !== "..")
  );
}
