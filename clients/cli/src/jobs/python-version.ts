import { UsageError } from "../exit.ts";

const specifier = /^(~=|===?|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?[a-z0-9.+-]*$/i;

/**
 * Whether a version of Python satisfies `requires-python` (PEP 440). The version of a job type is mostly just 3.13: a
 * condition on the missing part counts as satisfied.
 *
 * @throws UsageError if `required` is not a list of version specifiers.
 */
export function satisfiesPython(required: string, version: string): boolean {
  const has = version.split(".").map(Number);
  return required.split(",").every((part) => {
    const [, operator, release] = specifier.exec(part.trim()) ?? [];
    if (operator === undefined || release === undefined) {
      throw new UsageError(
        `requires-python in the script's \`# /// script\` block must look like ">=3.11", not "${required}"`,
      );
    }
    return satisfies(has, operator, release.split(".").map(Number), part.includes("*"));
  });
}

function satisfies(has: number[], operator: string, asked: number[], isPrefix: boolean): boolean {
  const compared = isPrefix ? Math.min(has.length, asked.length) : has.length;
  const order =
    has
      .slice(0, compared)
      .map((one, at) => Math.sign(one - (asked[at] ?? 0)))
      .find(Boolean) ?? 0;
  const isOpen = has.length < 3;
  switch (operator) {
    case ">=":
      return order >= 0;
    case ">":
      return order > 0 || (order === 0 && isOpen);
    case "<=":
      return order <= 0;
    case "<":
      return order < 0 || (order === 0 && isOpen && asked.length > has.length);
    case "!=":
      return order !== 0 || (isOpen && !isPrefix);
    case "~=":
      return (
        order >= 0 && asked.slice(0, -1).every((one, at) => at >= has.length || one === has[at])
      );
    default:
      return order === 0;
  }
}
