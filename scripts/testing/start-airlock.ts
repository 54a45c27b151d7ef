import { onTestFailed } from "vitest";
import { type StartProcess, startProcess } from "./start-process.ts";

/** Runs `npm start` on a free port until it is ready, and tells its URL; `began` gets the process at once. */
export async function startAirlock(
  env: Record<string, string>,
  began: (airlock: StartProcess) => void,
): Promise<{ airlock: StartProcess; url: string }> {
  const airlock = startProcess(process.cwd(), { AIRLOCK_PORT: "0", ...env });
  began(airlock);
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
