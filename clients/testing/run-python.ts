import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";

/** Runs a program with the Python client, and answers with the JSON that it prints. */
export async function runPython<T = unknown>(program: string, ...args: string[]): Promise<T> {
  const prelude = "import asyncio, json, sys, threading\nimport airlock\n";
  const { stdout } = await promisify(execFile)("python3", ["-c", prelude + program, ...args], {
    env: { ...process.env, PYTHONPATH: resolve("clients/python/src") },
    timeout: 240_000,
  });
  return JSON.parse(stdout) as T;
}
