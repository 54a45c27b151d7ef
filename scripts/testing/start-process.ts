import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { onTestFailed, onTestFinished } from "vitest";
import { programArgs } from "../../shared/testing/program.ts";

export type StartProcess = ReturnType<typeof startProcess>;

/** Runs `npm start` without npm, in `cwd`, with these additions to the environment. API and agent start from source. */
export function startProcess(cwd: string, env: Record<string, string>) {
  // As scripts/run starts it.
  const args = ["--max-semi-space-size=8", ...programArgs("scripts/start/main.ts")];
  const child = spawn(process.execPath, args, { cwd, env: { ...process.env, ...env } });
  let output = "";
  const more = new EventEmitter();
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      more.emit("more");
    });
  }
  const exited = once(child, "close").then(() => {
    more.emit("more");
    return child.exitCode;
  });

  const printed = async (text: string): Promise<void> => {
    while (!output.includes(text)) {
      if (!isRunning(child)) throw new Error(`ended without "${text}":\n${output}`);
      await once(more, "more");
    }
  };

  return {
    pid: child.pid ?? 0,
    /** All that it has printed so far. */
    output: () => output,
    /** Resolves when the output contains `text`; rejects when the process ends first. */
    printed,
    signal: (signal: NodeJS.Signals) => child.kill(signal),
    /** Resolves with its exit code; null after a signal that it did not handle. */
    exited,
  };
}

export function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}

/** Runs `npm start` on a free port until it is ready, and tells its URL. It ends with its test. */
export async function startAirlock(
  env: Record<string, string>,
): Promise<{ airlock: StartProcess; url: string }> {
  const airlock = startProcess(process.cwd(), { AIRLOCK_PORT: "0", ...env });
  onTestFinished(async () => {
    airlock.signal("SIGTERM");
    await airlock.exited;
  });
  onTestFailed(() => void process.stderr.write(airlock.output()));
  await airlock.printed("ready in");
  const url = / (http:\S+)\/console,/.exec(airlock.output())?.[1] ?? "";
  return { airlock, url };
}

export async function postJson<T>(url: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return (await response.json()) as T;
}

const SHARED = ["scripts", "shared", "node_modules", "package.json"];

/** Both stubs note what they do, with their pid, in a file that the test reads. */
const NOTE = `
import { appendFileSync } from "node:fs";
const note = (what: string) => appendFileSync("notes", what + " " + process.pid + "\\n");
process.on("disconnect", () => process.exit(0));
`;

const API = `${NOTE}
import { createServer } from "node:http";
if (process.env["STUB_API_FAILS"]) process.exit(7);
const answer = { success: true, stdout: "Python 3\\n", output: { sum: 42 }, error: null };
process.on("SIGTERM", () => { note("api-stops"); process.exit(0); });
const server = createServer((_request, response) => response.end(JSON.stringify(answer)));
server.listen(0, "127.0.0.1", () => {
  note("api-ready");
  process.send?.({ type: "ready", url: "http://127.0.0.1:" + server.address().port });
});
`;

const AGENT = `${NOTE}
let signals = 0;
process.on("SIGTERM", () => {
  signals += 1;
  note("agent-told-" + signals);
  const waitMs = signals > 1 ? 0 : Number(process.env["STUB_DRAIN_MS"] ?? 100);
  setTimeout(() => { note("agent-stops"); process.exit(0); }, waitMs);
});
note("agent-ready");
process.send?.({ type: "ready" });
`;

export type StubProject = ReturnType<typeof stubProject>;

/** A copy of this project, by links, whose API and agent only play their part towards npm start. */
export function stubProject() {
  const dir = mkdtempSync(join(tmpdir(), "airlock-start-"));
  for (const name of SHARED) symlinkSync(resolve(name), join(dir, name));
  for (const [folder, file, text] of [
    ["api", "node.ts", API],
    ["agent", "main.ts", AGENT],
  ] as const) {
    mkdirSync(join(dir, folder));
    writeFileSync(join(dir, folder, file), text);
  }
  writeFileSync(join(dir, "notes"), "");
  const lines = (): string[][] =>
    readFileSync(join(dir, "notes"), "utf8")
      .trim()
      .split("\n")
      .map((line) => line.split(" "));
  return {
    dir,
    /** What the stubs did so far, in order. */
    notes: (): string[] => lines().map(([what = ""]) => what),
    /** The pid of the last stub that noted this. */
    pidOf: (note: string) => Number(lines().findLast(([what]) => what === note)?.[1]),
  };
}
