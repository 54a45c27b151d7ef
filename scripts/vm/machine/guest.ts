import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { GuestImage } from "./build-image.ts";
import type { Machine } from "./qemu.ts";

/** The guest over ssh. */
export type Guest = AsyncDisposable & {
  /** Runs a bash script as root and returns what it prints. Throws GuestError where it fails. */
  readonly run: (script: string, timeoutMs?: number) => Promise<string>;
};

export class GuestError extends Error {
  override name = "GuestError";
}

const BOOT_TIMEOUT_MS = 1_200_000;
/** Ends what hangs: emulated on a busy machine, `npm start` alone was seen to take 20 minutes. */
const RUN_TIMEOUT_MS = 3_600_000;

/** Waits until the guest has booted, and connects to it once for all commands. */
export async function connectGuest(
  machine: Machine,
  image: GuestImage,
  folder: string,
): Promise<Guest> {
  const control = join(folder, "ssh");
  const destination = ["-p", String(machine.sshPort), "root@127.0.0.1"];
  const settings = [
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "BatchMode=yes",
    "LogLevel=ERROR",
    "ConnectTimeout=20",
  ];
  const options = [
    "-F",
    "none",
    "-S",
    control,
    "-i",
    join(image.folder, "key"),
    ...settings.flatMap((setting) => ["-o", setting]),
  ];
  const master = await connectMaster([...options, "-M", "-N", ...destination], control, machine);

  const guest: Guest = {
    async run(script, timeoutMs = RUN_TIMEOUT_MS) {
      const command = `bash -c ${quote(`set -eo pipefail\n${script}`)}`;
      const child = spawn("ssh", [...options, "-n", ...destination, command], {
        stdio: ["ignore", "pipe", "pipe"],
        timeout: timeoutMs,
      });
      const [out, errors, code] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        exitCode(child),
      ]);
      if (code === 0) return out.trimEnd();
      // ssh ends with code 255 by a signal too.
      const how = child.killed ? `took more than ${timeoutMs / 1000} s` : `exited with ${code}`;
      throw new GuestError(`\`${firstLine(script)}\` ${how}:\n${(out + errors).trimEnd()}`);
    },
    async [Symbol.asyncDispose]() {
      if (master.exitCode !== null || master.signalCode !== null) return;
      const exit = once(master, "exit");
      master.kill("SIGTERM");
      await exit;
    },
  };
  // ssh answers before the project's disk is mounted. A unit that failed is a check's business.
  await guest.run(
    "systemctl is-system-running --wait >/dev/null || true\nmountpoint /opt",
    BOOT_TIMEOUT_MS,
  );
  return guest;
}

async function connectMaster(
  args: string[],
  control: string,
  machine: Machine,
): Promise<ChildProcess> {
  const deadline = performance.now() + BOOT_TIMEOUT_MS;
  for (;;) {
    const master = spawn("setpriv", ["--pdeathsig=KILL", "ssh", ...args], { stdio: "ignore" });
    while (master.exitCode === null && master.signalCode === null) {
      if (existsSync(control)) return master;
      await sleep(100);
    }
    rmSync(control, { force: true });
    if (machine.exited() || performance.now() > deadline) {
      const what = machine.exited() ? "ended while it booted" : "did not answer ssh";
      throw new Error(`the guest ${what}; its console ends with:\n${machine.consoleTail()}`);
    }
    await sleep(1000);
  }
}

async function exitCode(child: ChildProcess): Promise<number | null> {
  const [code] = (await once(child, "exit")) as [number | null];
  return code;
}

/** The text as one word of a shell. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function firstLine(script: string): string {
  return script.trim().split("\n")[0]!;
}
