import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { beforeAll, expect, test } from "vitest";
import { loadModules, sources } from "../../python/program.ts";
import { inNamespace } from "./host-link.ts";
import { runOnHost } from "./host-run.ts";
import type { Python } from "./find-python.ts";
import { programs } from "./semantics.ts";
import type { RunReport } from "../report.ts";
import type { SandboxJob } from "../job.ts";

export interface Outcome {
  /** Exit status, or the negative number of a signal. */
  readonly exit: number;
  readonly stdout: string;
  readonly stderr: string;
}

type Inputs = Pick<SandboxJob, "stdin" | "args">;

/** Prints what the code can learn about its arguments and a standard input larger than a pipe. */
const withInputs = {
  code: `import argparse, os, stat, subprocess, sys
print(sys.argv, getattr(sys, "orig_argv", None), sys.stdin.seekable(), sys.stdin.isatty())
print(sys.stdin, sys.stdin.encoding, stat.S_ISREG(os.fstat(0).st_mode), os.get_inheritable(0))
print(ascii(input()), ascii(sys.stdin.readline()))
print(subprocess.run(["wc", "-c"], stdout=-1).stdout)
print(len(sys.stdin.buffer.read()), ascii(sys.stdin.read()))
os.lseek(0, 0, 0)
print(subprocess.run(["head", "-n1"], stdout=-1).stdout)
parser = argparse.ArgumentParser()
parser.add_argument("--name")
parser.add_argument("rest", nargs="*")
print(ascii(parser.parse_args()))
parser.error("as it is told")`,
  args: ["--name", "", "a b\n\"'", "\u00e4\u{1f600}", "*"],
  stdin: `tea\u00e4\u{1f600}\r\n\0\ufeff\n${"y".repeat(200_000)}`,
};

const caps = { streamBytes: 10_000_000, artifactBytes: 0 };

/** Rows: programs do the same with the supervisor as without it. */
export function semanticsRows(python: () => Python): void {
  let plain: Map<string, Outcome>;
  beforeAll(() => void (plain = runPlain(python())));
  const runSupervised = (code: string | Uint8Array, inputs: Inputs = {}): Promise<RunReport> =>
    runOnHost(code, { python: python(), timeoutMs: 60_000, caps, ...inputs });

  test.concurrent.each(Object.entries(programs))("%s", async (name, code) => {
    const report = await runSupervised(code);
    expect(comparable(outcomeOf(report))).toEqual(comparable(plain.get(name)));
  });

  test("stdin and args", async () => {
    const { code, ...inputs } = withInputs;
    const report = await runSupervised(code, inputs);
    expect(outcomeOf(report)).toEqual(plain.get("stdin and args"));
  });

  test("what start-up created is kept out of the search for garbage", async () => {
    const code = `import gc, sys; print(sys.version_info >= (3, 10), gc.get_freeze_count() > 1000)`;
    const words = Buffer.from((await runSupervised(code)).stdout).toString();
    expect(["True True\n", "False False\n"]).toContain(words);
  });

  test.each([
    ["raise KeyError(1)", "builtins.KeyError"],
    ["def", "builtins.SyntaxError"],
    ["import json; json.loads('')", "json.decoder.JSONDecodeError"],
    ["import sys; sys.excepthook = print; 1 / 0", "builtins.ZeroDivisionError"],
    ["import sys; sys.exit(1)", undefined],
    ["import threading; threading.Thread(target=lambda: 1 / 0).start()", undefined],
  ])("%s is reported as %s", async (code, name) => {
    expect((await runSupervised(code)).exception?.mro[0]).toBe(name);
  });
}

/** What each program does without a supervisor. */
function runPlain(python: Python): Map<string, Outcome> {
  const plain = readFileSync(new URL("plain.py", import.meta.url), "utf8");
  const program = loadModules({ ...sources(["kernel"]), plain });
  const [file = "", ...args] = inNamespace(python, ["python3", "-I", "-S", "-c", program]);
  const told = [...Object.values(programs).map((code) => ({ code })), withInputs].map(
    ({ code, ...given }: { code: string | Uint8Array } & Inputs) => [
      Buffer.from(code).toString("base64"),
      given.args ?? [],
      given.stdin ?? null,
    ],
  );
  const run = spawnSync(file, args, { input: JSON.stringify(told), encoding: "utf8" });
  if (run.status !== 0) throw new Error(run.stderr);
  const outcomes = JSON.parse(run.stdout) as [number, string, string][];
  return new Map(
    [...Object.keys(programs), "stdin and args"].map((name, i) => {
      const [exit = NaN, stdout = "", stderr = ""] = outcomes[i] ?? [];
      return [name, { exit, stdout: fromBase64(stdout), stderr: fromBase64(stderr) }];
    }),
  );
}

export function outcomeOf(report: RunReport): Outcome {
  return {
    exit: report.exitStatus ?? -signalNumber(report.exitSignal),
    stdout: Buffer.from(report.stdout).toString("latin1"),
    stderr: Buffer.from(report.stderr).toString("latin1"),
  };
}

/** Addresses differ from run to run. */
export function comparable(outcome: Outcome | undefined): Outcome {
  const { exit = NaN, stdout = "", stderr = "" } = outcome ?? {};
  const address = /0x[0-9a-f]+/g;
  return { exit, stdout: stdout.replace(address, "0x"), stderr: stderr.replace(address, "0x") };
}

function signalNumber(name: string | null): number {
  return (constants.signals as Record<string, number>)[name ?? ""] ?? NaN;
}

function fromBase64(text: string): string {
  return Buffer.from(text, "base64").toString("latin1");
}
