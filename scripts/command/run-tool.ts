import { spawn } from "node:child_process";
import { resolve } from "node:path";

export type ToolResult = { ok: boolean; output: string };

/** The tools' own `node` comes from node_modules too: the machine's may be too old for them. */
export const toolEnv = {
  ...process.env,
  PATH: `${resolve("node_modules/.bin")}:${process.env["PATH"] ?? ""}`,
};

/** Runs one of the project's command-line tools and collects what it prints. */
export async function runTool(name: string, args: string[]): Promise<ToolResult> {
  const child = spawn(name, args, { env: toolEnv, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  return new Promise((done, fail) => {
    child.once("error", fail);
    child.once("close", (code) => done({ ok: code === 0, output }));
  });
}
