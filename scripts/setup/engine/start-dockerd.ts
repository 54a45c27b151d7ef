import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError } from "../../command/operator-error.ts";
import { say } from "../../command/say.ts";
import { clearLeftovers, runningDockerd } from "./dockerd-leftovers.ts";
import type { DockerdPlace } from "./dockerd-place.ts";
import { pingEngine } from "./ping-engine.ts";
import { logTail } from "../run-step.ts";

const START_TIMEOUT_MS = 60_000;
const PING_EVERY_MS = 100;

/** Starts a dockerd that outlives this process, and waits until it answers. Returns its pid. */
export async function startDockerd(place: DockerdPlace): Promise<number> {
  const running = runningDockerd(place);
  if (running) {
    say(`dockerd (pid ${running.pid}) runs but does not answer yet, waiting for it`);
    await untilItAnswers(place, () => runningDockerd(place) === undefined);
    return running.pid;
  }

  await clearLeftovers(place);
  const dockerd = launch(place);
  await untilItAnswers(place, dockerd.exited);
  say(`started dockerd (pid ${dockerd.pid}, log ${place.logFile}); it stays when airlock ends`);
  return dockerd.pid;
}

function launch(place: DockerdPlace): { pid: number; exited: () => boolean } {
  mkdirSync(dirname(place.logFile), { recursive: true });
  const log = openSync(place.logFile, "w");
  const child = spawn(place.command, place.args, {
    cwd: "/",
    detached: true,
    stdio: ["ignore", log, log],
  });
  closeSync(log);
  child.unref();
  if (child.pid === undefined) throw new OperatorError("cannot run dockerd: is it on the PATH?");
  return { pid: child.pid, exited: () => child.exitCode !== null || child.signalCode !== null };
}

async function untilItAnswers(place: DockerdPlace, ended: () => boolean): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  while ((await pingEngine(`unix://${place.socket}`)).state !== "answers") {
    const late = performance.now() > deadline;
    if (ended() || late) {
      const what = late ? `does not answer after ${START_TIMEOUT_MS / 1000} s` : "did not start";
      throw new OperatorError(
        `dockerd ${what}. The end of ${place.logFile}:\n${logTail(place.logFile)}`,
      );
    }
    await sleep(PING_EVERY_MS);
  }
}
