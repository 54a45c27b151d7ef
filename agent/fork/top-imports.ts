/** How much of a program is looked at, in characters and lines. */
const [mostCharacters, mostLines] = [16_384, 200];
/** Most modules of a program. */
const mostModules = 16;
/** What an import that comes earlier would miss, or would show the code. */
const matters = /\b(os\.environ|putenv|sys\.path|sys\.modules|warnings|locale|\w+_NUM_THREADS)\b/;
const name = String.raw`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*`;
const plain = new RegExp(
  String.raw`^import\s+(${name}(?:\s+as\s+\w+)?(?:\s*,\s*${name}(?:\s+as\s+\w+)?)*)\s*(?:#.*)?$`,
);
const from = new RegExp(String.raw`^from\s+(${name})\s+import\s`);

/**
 * The modules that a program imports in lines of their own, such as "matplotlib.pyplot", up to the first line that
 * names something which an earlier import would change. The text is read, never run.
 */
export function topImports(code: string): string[] {
  const found = new Set<string>();
  for (const line of code.slice(0, mostCharacters).split("\n", mostLines)) {
    if (matters.test(line)) break;
    const names = plain.exec(line.trimEnd())?.[1]?.split(",") ?? [from.exec(line)?.[1] ?? ""];
    for (const each of names) found.add(each.trim().split(/\s/)[0]!);
  }
  for (const never of ["", "__future__", "__main__"]) found.delete(never);
  return [...found].slice(0, mostModules);
}
