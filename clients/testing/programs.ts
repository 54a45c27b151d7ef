import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { tempFolder } from "../../shared/testing/test-file.ts";

/** Runs a program to its end. */
export const run = promisify(execFile);

/** The interpreter of a new environment with packages of PyPI. */
export async function pythonWith(...packages: readonly string[]): Promise<string> {
  const folder = tempFolder();
  await run("python3", ["-m", "venv", folder]);
  const python = join(folder, "bin/python");
  await run(python, ["-m", "pip", "install", "--quiet", ...packages]);
  return python;
}

/** A new folder with packages of npm, and options of their installation. */
export async function folderWith(
  packages: readonly string[],
  packageJson: object = {},
): Promise<string> {
  const folder = tempFolder();
  writeFileSync(join(folder, "package.json"), JSON.stringify(packageJson));
  await run("npm", ["install", "--silent", "--no-audit", "--prefix", folder, ...packages]);
  return folder;
}

/** The key of services that programs get beside the address. */
export const key = "key-0123456789abcdef";

/** The Python client under one interpreter. */
export interface PythonClient {
  /** Runs a program, and answers with what it prints. */
  readonly print: (program: string, ...args: string[]) => Promise<string>;
  /** The same with the client imported; answers with the JSON that it prints. */
  readonly run: <T = unknown>(program: string, ...args: string[]) => Promise<T>;
}

/** @param command Starts the interpreter, with variables that it needs. */
export function pythonClient(
  command: () => { args: readonly string[]; env?: Record<string, string> } = () => ({
    args: ["python3"],
  }),
): PythonClient {
  const print: PythonClient["print"] = async (program, ...args) => {
    const { args: interpreter, env } = command();
    const [file = "", ...before] = interpreter;
    const { stdout } = await run(file, [...before, "-c", program, ...args], {
      env: { ...process.env, ...env, PYTHONPATH: resolve("clients/python/src") },
      timeout: 240_000,
      maxBuffer: 64 * 1024 * 1024,
    });
    return stdout;
  };
  const prelude = "import asyncio, json, sys, threading\nimport airlock\n";
  return {
    print,
    run: async <T>(program: string, ...args: string[]) =>
      JSON.parse(await print(prelude + program, ...args)) as T,
  };
}

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
      .filter(
        (line) =>
          /print\(|console\.log\(|stdout\.write\(/.test(line) &&
          line.includes(`  ${comment}`.trim()),
      )
      .flatMap((line) => new RegExp(`\\) ?;? *${comment} (.*)$`).exec(line)?.[1] ?? []),
  };
}
