import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Link } from "../protocol/link.ts";
import { type Bytecode, pid1Command, supervisorProgram } from "../../python/program.ts";
import type { Python } from "./find-python.ts";

const namespace = fileURLToPath(new URL("namespace.sh", import.meta.url));

/** A command that runs as PID 1 of namespaces of its own; see namespace.sh. */
export function inNamespace(python: Python, command: readonly string[]): string[] {
  return ["sh", namespace, python.folder, ...command];
}

export interface HostLink extends Link {
  /** Resolves when the supervisor and all its processes have ended. */
  readonly ended: Promise<unknown>;
}

export interface HostOptions {
  readonly preload?: readonly string[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly bytecode?: Bytecode | null | undefined;
}

/** A supervisor that runs without an engine. Needs root. */
export function startOnHost(
  python: Python,
  { preload = [], env = {}, bytecode = null }: HostOptions = {},
): HostLink {
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const command = ["env", ...assignments, ...pid1Command];
  const [file = "", ...args] = inNamespace(python, command);
  const child = spawn(file, args, { stdio: "pipe" });
  let stderr = "";
  child.stderr.on("data", (bytes: Buffer) => (stderr = (stderr + bytes.toString()).slice(-4096)));
  child.stdin.on("error", () => {});
  child.stdin.write(supervisorProgram(preload, bytecode));
  return {
    input: child.stdin,
    output: child.stdout,
    ended: once(child, "exit"),
    diagnostics: () => stderr,
    destroy() {
      child.stdin.destroy();
      child.stdout.destroy();
    },
  };
}
