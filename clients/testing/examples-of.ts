import { readFileSync } from "node:fs";

/** The examples of a document as one program against a service, and what their comments say it prints. */
export function examplesOf(
  file: string,
  language: string,
  service: { url: string; key: string },
): { program: string; prints: string[] } {
  const blocks = readFileSync(file, "utf8").matchAll(
    new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, "gm"),
  );
  const text = [...blocks].map(([, block]) => block).join("\n");
  const comment = language === "python" ? "#" : "//";
  return {
    program: text
      .replaceAll("http://127.0.0.1:8080", service.url)
      .replaceAll("YOUR-KEY", service.key),
    prints: text
      .split("\n")
      .filter((line) => /print\(|console\.log\(/.test(line) && line.includes(`  ${comment}`.trim()))
      .flatMap((line) => new RegExp(`\\) ?;? *${comment} (.*)$`).exec(line)?.[1] ?? []),
  };
}
