import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";

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
    const { stdout } = await promisify(execFile)(file, [...before, "-c", program, ...args], {
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
      .filter((line) => /print\(|console\.log\(/.test(line) && line.includes(`  ${comment}`.trim()))
      .flatMap((line) => new RegExp(`\\) ?;? *${comment} (.*)$`).exec(line)?.[1] ?? []),
  };
}
