import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * `sh scripts/run scripts/docs/syscall-numbers.ts linux-libc-dev_VERSION_all.deb`: writes
 * agent/sandbox/syscall-numbers.ts from the kernel's headers. The package is in
 * pool/main/l/linux/ of any Debian mirror; the one of Debian 13 or later has the headers of both
 * architectures. Run it when the list in agent/sandbox/filter.ts gets a call that is newer.
 */
const headers = {
  x86_64: "usr/include/x86_64-linux-gnu/asm/unistd_64.h",
  aarch64: "usr/include/aarch64-linux-gnu/asm/unistd_64.h",
};
const target = fileURLToPath(new URL("../../agent/sandbox/syscall-numbers.ts", import.meta.url));

const [deb] = process.argv.slice(2);
if (deb === undefined) throw new Error("usage: syscall-numbers.ts linux-libc-dev_VERSION_all.deb");
const folder = mkdtempSync(join(tmpdir(), "airlock-headers-"));
try {
  execFileSync("dpkg-deb", ["--extract", deb, folder]);
  const tables = Object.entries(headers).map(([architecture, path]) => {
    const defined = readFileSync(join(folder, path), "utf8").matchAll(
      /^#define __NR_(\w+) (\d+)$/gm,
    );
    const words = [...defined].map(([, name, number]) => `${name} ${number}`);
    return `  ${architecture}: table(\`\n${wrap(words)}\`),\n`;
  });
  writeFileSync(
    target,
    `// Made by scripts/docs/syscall-numbers.ts from ${basename(deb)}.

export type Architecture = "x86_64" | "aarch64";

/** The number of each system call by its name. */
export const syscallNumbers: Readonly<Record<Architecture, ReadonlyMap<string, number>>> = {
${tables.join("")}};

function table(text: string): ReadonlyMap<string, number> {
  const pairs = text.matchAll(/(\\w+) (\\d+)/g);
  return new Map([...pairs].map(([, name, number]) => [name!, Number(number)]));
}
`,
  );
} finally {
  rmSync(folder, { recursive: true });
}

/** Lines of up to 100 characters; no line starts with a number. */
function wrap(pairs: readonly string[]): string {
  const lines: string[] = [];
  let line = "   ";
  for (const pair of pairs) {
    if (line.length + pair.length >= 100) {
      lines.push(line);
      line = "   ";
    }
    line += ` ${pair}`;
  }
  return [...lines, line].join("\n");
}
