import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { logTail } from "../../setup/run-step.ts";
import { CACHE, type GuestImage } from "./build-image.ts";
import { hasKvm } from "./tools.ts";

export type Machine = AsyncDisposable & {
  /** Where the guest's ssh is reached on 127.0.0.1. */
  readonly sshPort: number;
  readonly exited: () => boolean;
  /** The guest's console, its last lines. */
  readonly consoleTail: () => string;
};

const CPUS = 2;
const MEMORY_MIB = 6144;
/**
 * Emulated on a busy machine, a disk or a service may need more than systemd's 90 s, and the kernel sees too few ticks of
 * the timer that it checks at boot, which ends in a panic.
 */
const PATIENCE =
  "systemd.default_device_timeout_sec=600 systemd.default_timeout_start_sec=600 no_timer_check";
const KERNEL_ARGUMENTS = `root=/dev/vda rw console=ttyS0 systemd.show_status=0 ${PATIENCE} mitigations=off panic=-1`;

const VIRTUALIZED = { accel: "kvm", cpu: "host" };
/** A thread for each of the guest's processors. */
const EMULATED = { accel: "tcg,thread=multi", cpu: "max" };

/** Starts the machine with this QEMU. It dies with this process, however that ends. */
export async function startMachine(
  qemu: readonly string[],
  image: GuestImage,
  projectDisk: string,
  folder: string,
): Promise<Machine> {
  const consoleFile = join(folder, "console.log");
  const settings = {
    machine: "q35",
    ...(hasKvm() ? VIRTUALIZED : EMULATED),
    smp: CPUS,
    m: MEMORY_MIB,
    display: "none",
    monitor: "stdio",
    serial: `file:${consoleFile}`,
    kernel: join(image.folder, "vmlinuz"),
    initrd: join(image.folder, "initrd"),
    append: KERNEL_ARGUMENTS,
    netdev: "user,id=net,hostfwd=tcp:127.0.0.1:0-:22",
  };
  const devices = ["virtio-net,netdev=net", "virtio-rng-pci"];
  const disks = [join(image.folder, "root.img"), projectDisk];
  const command = [
    ...qemu,
    "-no-reboot",
    ...Object.entries(settings).flatMap(([name, value]) => [`-${name}`, String(value)]),
    ...devices.flatMap((device) => ["-device", device]),
    ...disks.flatMap((file) => ["-drive", `file=${file},format=raw,if=virtio,snapshot=on`]),
  ];
  const errors = openSync(join(folder, "qemu.log"), "w");
  const child = spawn("setpriv", ["--pdeathsig=KILL", ...command], {
    stdio: ["pipe", "pipe", errors],
    // Where snapshot=on keeps what the guest writes, in files without a name.
    env: { ...process.env, TMPDIR: CACHE },
  });
  closeSync(errors);
  const sshPort = await readSshPort(child, join(folder, "qemu.log"));
  return {
    sshPort,
    exited: () => hasExited(child),
    consoleTail: () => logTail(consoleFile, 30),
    /** Ends the machine at once: its disks keep nothing. */
    async [Symbol.asyncDispose]() {
      if (hasExited(child)) return;
      const exit = once(child, "exit");
      child.kill("SIGKILL");
      await exit;
    },
  };
}

/** Asks qemu's monitor which port the kernel chose for ssh. */
async function readSshPort(child: ChildProcess, logFile: string): Promise<number> {
  child.stdin!.write("info usernet\n");
  let said = "";
  for await (const chunk of child.stdout!.iterator({
    destroyOnReturn: false,
  }) as AsyncIterable<Buffer>) {
    said += chunk.toString();
    const port = /HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)/.exec(said)?.[1];
    if (port) {
      child.stdout!.resume();
      return Number(port);
    }
  }
  throw new Error(`qemu did not start:\n${said}${logTail(logFile)}`);
}

function hasExited(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}
