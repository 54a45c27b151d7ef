import { parse } from "smol-toml";
import { UsageError } from "../exit.ts";

/** What a script says about itself: https://peps.python.org/pep-0723/. */
export interface ScriptMetadata {
  dependencies: string[];
  requiresPython?: string | undefined;
}

/** The one pattern that PEP 723 gives. */
const block = /^# \/\/\/ (?<type>[a-zA-Z0-9-]+)$\s(?<content>(?:^#(?:| .*)$\s)+)^# \/\/\/$/gm;

/** Reads the `# /// script` block. Throws UsageError where there are two, or where it is no TOML. */
export function readScriptMetadata(code: string): ScriptMetadata {
  const unix = code.replaceAll("\r\n", "\n");
  const found = [...unix.matchAll(block)].filter(({ groups }) => groups?.["type"] === "script");
  if (found.length > 1) throw new UsageError("the script has two `# /// script` blocks: keep one");
  const [content] = found.map(({ groups }) => groups?.["content"] ?? "");
  if (content === undefined) return { dependencies: [] };
  const toml = content
    .split("\n")
    .map((line) => (line.startsWith("# ") ? line.slice(2) : line.slice(1)))
    .join("\n");
  let table: Record<string, unknown>;
  try {
    table = parse(toml);
  } catch (error) {
    const reason = error instanceof Error ? error.message.split("\n")[0] : "";
    throw new UsageError(`the script's \`# /// script\` block is no TOML: ${reason}`);
  }
  const { dependencies = [], "requires-python": requiresPython } = table;
  if (!Array.isArray(dependencies) || !dependencies.every((one) => typeof one === "string")) {
    throw new UsageError(
      "dependencies in the script's `# /// script` block must be a list of texts",
    );
  }
  return {
    dependencies,
    ...(typeof requiresPython === "string" && { requiresPython }),
  };
}
