import { readFileSync } from "node:fs";

/** The examples of a document against a service, also as one program, and what their comments say that this prints. */
export function examplesOf(
  file: string,
  language: string,
  service: { url: string; key: string },
): { blocks: string[]; program: string; prints: string[] } {
  const found = readFileSync(file, "utf8").matchAll(
    new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, "gm"),
  );
  const blocks = [...found].map(([, block = ""]) =>
    block.replaceAll("http://127.0.0.1:8080", service.url).replaceAll("YOUR-KEY", service.key),
  );
  const program = blocks.join("\n");
  const comment = language === "python" ? "#" : "//";
  return {
    blocks,
    program,
    prints: program
      .split("\n")
      .filter((line) => /print\(|console\.log\(/.test(line) && line.includes(`  ${comment}`.trim()))
      .flatMap((line) => new RegExp(`\\) ?;? *${comment} (.*)$`).exec(line)?.[1] ?? []),
  };
}
