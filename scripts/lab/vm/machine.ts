import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  closeSync,
  cpSync,
  createWriteStream,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import { OperatorError, say } from "../../operate/command.ts";
import {
  aptInstall,
  aptUpdate,
  CONFINED,
  debianMirror,
  hasCommand,
  LOG_DIR,
  logTail,
  runStep,
  withSetupLock,
} from "../../setup/steps.ts";
import { HELM } from "../../setup/tools.ts";
import { tiersOf } from "../../test/tiers.ts";
import { GUEST_PACKAGES } from "./guest/packages.ts";

/** The guest over ssh. */
type Guest = AsyncDisposable & {
  /** Runs a bash script as root and returns what it prints. Throws GuestError where it fails. */
  readonly run: (script: string, timeoutMs?: number) => Promise<string>;
};

class GuestError extends Error {
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

type Machine = AsyncDisposable & {
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

/** The programs that build the guest and reach it, each with the Debian package that brings it. */
const PACKAGE_OF: Readonly<Record<string, string>> = {
  debootstrap: "debootstrap",
  mke2fs: "e2fsprogs",
  ssh: "openssh-client",
};

/** Makes sure of these programs. Throws OperatorError where this process may not build a guest. */
export async function ensureVmTools(): Promise<void> {
  const machine = { root: process.getuid?.() === 0, apt: hasCommand("apt-get") };
  const advice = toolsAdvice(missingTools(), machine);
  if (advice !== undefined) throw new OperatorError(advice);
  if (missingTools().length === 0) return;
  await withSetupLock(async () => {
    const packages = missingTools().map((name) => PACKAGE_OF[name]!);
    if (packages.length === 0) return;
    await aptUpdate();
    await aptInstall([...packages, "debian-archive-keyring"]);
  });
}

/** What is wrong and what to do, where this process may not build a guest; undefined where it may. */
export function toolsAdvice(
  missing: readonly string[],
  machine: { root: boolean; apt: boolean },
): string | undefined {
  const packages = missing.map((name) => PACKAGE_OF[name]).join(" ");
  if (!machine.root) {
    return `npm run test:vm needs root: debootstrap makes the files of a system.\nRun it with sudo: it installs what is missing${packages && ` (${packages})`}.`;
  }
  if (missing.length === 0 || machine.apt) return undefined;
  return `npm run test:vm needs ${missing.join(", ")}, and there is no apt-get here.\nInstall them with this system's package manager (Debian's packages are ${packages}), then run this again.`;
}

function missingTools(): string[] {
  return Object.keys(PACKAGE_OF).filter((name) => !hasCommand(name));
}

/** Whether qemu can use the processor's virtualization: /dev/kvm alone does not say so. */
function hasKvm(): boolean {
  return existsSync("/dev/kvm") && /\b(vmx|svm)\b/.test(readFileSync("/proc/cpuinfo", "utf8"));
}

const PROGRAM = "qemu-system-x86_64";
/** What older ones emulate kills the guest's kernel, for example cmpxchg16b and its own patching (7.2, Debian 12's). */
const OLDEST = 10;

/** The command that starts a QEMU which is new enough: this machine's own, else Debian 13's from a folder. */
export async function ensureQemu(): Promise<readonly string[]> {
  if (isNewEnough(versionOf([PROGRAM]))) return [PROGRAM];
  const folder = join(CACHE, "qemu-debian13");
  await withSetupLock(async () => {
    if (!existsSync(folder)) await unpack(folder);
  }, "airlock-vm-qemu");
  return unpacked(folder);
}

async function unpack(folder: string): Promise<void> {
  const partial = `${folder}.partial`;
  mkdirSync(CACHE, { recursive: true });
  rmSync(partial, { recursive: true, force: true });
  await runStep({
    title: "unpacking Debian 13's QEMU (about a minute)",
    command: "sh",
    args: [join(import.meta.dirname, "unpack-qemu.sh"), partial, debianMirror()],
    logFile: join(LOG_DIR, "vm-qemu.log"),
  });
  renameSync(partial, folder);
}

/** Runs the program of another system with that system's own libraries. */
function unpacked(folder: string): readonly string[] {
  const libraries = join(folder, "usr/lib/x86_64-linux-gnu");
  const data = ["usr/share/qemu", "usr/share/seabios"].flatMap((path) => [
    "-L",
    join(folder, path),
  ]);
  const loader = join(folder, "usr/lib64/ld-linux-x86-64.so.2");
  return [loader, "--library-path", libraries, join(folder, "usr/bin", PROGRAM), ...data];
}

function versionOf(command: readonly string[]): string {
  const [program = "", ...args] = command;
  return spawnSync(program, [...args, "--version"], { encoding: "utf8" }).stdout ?? "";
}

export function isNewEnough(version: string): boolean {
  return Number(/version (\d+)\./.exec(version)?.[1] ?? 0) >= OLDEST;
}

/** Guest images and what a run writes; safe to delete while no run is at work. */
export const CACHE = "/var/cache/airlock/vm";

const SOURCES = join(import.meta.dirname, "guest");
const AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt";

/** Files that qemu and ssh read: `root.img`, `vmlinuz`, `initrd` and `key`. */
type GuestImage = { readonly folder: string };

/** The guest's image: the one that was built from the same inputs, else a new one (about 4 minutes). */
export async function ensureGuestImage(): Promise<GuestImage> {
  const mirror = debianMirror();
  const folder = join(CACHE, `debian13-${hashInputs(mirror)}`);
  return withSetupLock(async () => {
    if (existsSync(folder)) say(`the guest's image is there: ${folder}`);
    else await build(folder, mirror);
    return { folder };
  }, "airlock-vm-image");
}

function hashInputs(mirror: string): string {
  const hash = createHash("sha256").update(mirror);
  for (const name of readdirSync(SOURCES).sort()) hash.update(readFileSync(join(SOURCES, name)));
  if (existsSync(AUTHORITIES)) hash.update(readFileSync(AUTHORITIES));
  return hash.digest("hex").slice(0, 12);
}

async function build(folder: string, mirror: string): Promise<void> {
  mkdirSync(CACHE, { recursive: true });
  for (const name of readdirSync(CACHE)) {
    if (name.startsWith("debian13-")) rmSync(join(CACHE, name), { recursive: true });
  }
  const partial = `${folder}.partial`;
  mkdirSync(partial);
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", join(partial, "key")]);
  const script = join(SOURCES, "build.sh");
  await runStep({
    title: "building the Debian 13 guest (about 4 minutes)",
    command: "setpriv",
    args: [...CONFINED, "sh", script, partial, mirror, ...GUEST_PACKAGES],
    logFile: join(LOG_DIR, "vm-build.log"),
  });
  renameSync(partial, folder);
}

/** Where the guest finds what the project's disk holds. */
const IN_GUEST = {
  project: "/opt/airlock",
  baseImage: "/opt/base-image.tar",
  chart: "/opt/chart.yaml",
};

/** Values with which the chart gives confined pods. */
const CONFINED_POD = "agents.default.engine.confined=true";

/** Not in git: `scripts/run` makes them, also before this file runs. */
const generated = [
  "clients/typescript/src/generated.ts",
  "clients/python/src/airlock/types.py",
  "clients/python/src/airlock/problems.py",
];

/**
 * Makes the project's disk in `folder`: a clone of the committed HEAD with this checkout's
 * node_modules, the base image as a tar file, and what helm makes of the chart. All that is slow under emulation is done
 * here.
 */
export async function makeProjectDisk(
  folder: string,
  docker: Docker,
  baseImage: string,
): Promise<string> {
  const head = git("rev-parse", "--short", "HEAD");
  const changed = git("status", "--porcelain") === "" ? "" : "; uncommitted changes are left out";
  say(`the guest gets commit ${head}${changed}`);

  const staging = join(folder, "staging");
  const clone = join(staging, "airlock");
  mkdirSync(staging);
  git("clone", "--quiet", "--no-hardlinks", ".", clone);
  execFileSync("cp", ["-a", "node_modules", join(clone, "node_modules")]);
  for (const file of generated) cpSync(file, join(clone, file));
  // Newer than the lock file of the clone, so that `scripts/run` does not install again.
  const now = new Date();
  utimesSync(join(clone, "node_modules/.package-lock.json"), now, now);

  const archive = (await docker.getImage(baseImage).get()) as Readable;
  await pipeline(archive, createWriteStream(join(staging, "base-image.tar")));

  const chart = ["template", "air", "packaging/chart", "--set", CONFINED_POD];
  writeFileSync(join(staging, "chart.yaml"), execFileSync(HELM, chart));

  const disk = join(folder, "project.img");
  execFileSync("truncate", ["-s", "6G", disk]);
  execFileSync("mke2fs", ["-q", "-t", "ext4", "-d", staging, disk]);
  rmSync(staging, { recursive: true });
  return disk;
}

function git(...args: string[]): string {
  return execFileSync("git", args, { encoding: "utf8" }).trim();
}

/** Files of one tier's tests, which the guest runs on a Docker of this configuration. */
export type Run = {
  readonly name: string;
  readonly files: readonly string[];
  /** The titles of the tests that run; without it, all tests run. */
  readonly rows?: RegExp;
  /** More of Docker's daemon.json. */
  readonly docker?: object;
};

/**
 * Tests whose result cgroup v2, systemd, another engine or a current kernel could change. They are few, because
 * emulation is 5 to 20 times slower, and none has a bound on CPU times or durations.
 */
export const runs: readonly Run[] = [
  {
    name: "docker",
    files: [
      "scripts/lab/start.engine.test.ts",
      "scripts/lab/forked.engine.test.ts",
      "agent/sandbox/kernel.engine.test.ts",
      "agent/sandbox/hostile/privileges.engine.test.ts",
    ],
  },
  {
    name: "processes",
    files: ["agent/sandbox/hostile/limits.engine.test.ts"],
    rows: /allocates past the limit|a child runs out of memory|memory that outlives the code|full folders|ignores SIGTERM|fork bomb|thread bomb|does not reach the supervisor|a daemon/,
  },
  { name: "gvisor", files: ["agent/host/policy.engine.test.ts"], rows: /on gVisor/ },
  { name: "systemd", files: ["scripts/lab/systemd.lab.test.ts"] },
  { name: "podman", files: ["scripts/lab/podman.lab.test.ts"] },
  {
    // As newer Dockers have it from the start. Images that go from engine to engine are left out: without a registry
    // that does not work with containerd's store (docs/guides/packages.md).
    name: "containerd",
    docker: { features: { "containerd-snapshotter": true } },
    files: ["agent/builds/build.engine.test.ts", "scripts/lab/start.engine.test.ts"],
    rows: /makes an image|leaves only the package|serves jobs/,
  },
];

/**
 * gVisor as `npm run setup` registers it: Debian's runsc cannot build its network on recent kernels. A guest without runsc
 * has the entry too; only a container that asks for it fails.
 */
const runtimes = { runsc: { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] } };

const timeoutMs = 4 * 3_600_000;

/** Describes the guest. Throws GuestError if it is not the machine that the tests need. */
export async function describeGuest(guest: Guest): Promise<string> {
  return guest.run(`# the guest's systemd and control groups
uname -r
systemctl --version | head -n 1
dpkg-query -W -f '\${Package} \${Version}\\n' docker.io podman runc crun runsc 2>/dev/null || true
systemctl --failed --plain --no-legend | tee /dev/stderr | { ! grep -q .; }
grep -q 'cpu .*memory .*pids' /sys/fs/cgroup/cgroup.controllers`);
}

/** Runs the files and returns the end of what vitest printed. Throws GuestError with all of it if a test fails. */
export async function runInGuest(
  guest: Guest,
  { name, files, rows, docker }: Run,
): Promise<string> {
  const daemon = JSON.stringify({ runtimes, ...docker });
  await guest.run(`# start docker
mkdir -p /etc/docker
echo ${quote(daemon)} >/etc/docker/daemon.json
systemctl reset-failed docker 2>/dev/null || true
systemctl restart docker
docker images --quiet | grep -q . || docker load --quiet --input ${IN_GUEST.baseImage}`);
  const only = rows ? `--testNamePattern=${quote(rows.source)}` : "";
  const tier = tiersOf(files[0]!)[0];
  const printed = await guest.run(
    `# ${name}: ${files.join(" ")}
cd ${IN_GUEST.project}
export PATH=$PWD/node_modules/.bin:$PATH NO_COLOR=1 TEST_PATIENCE=12
export TEST_VM_USER=ada TEST_VM_CHART=${IN_GUEST.chart}
export AIRLOCK_DOCKER_HOST=unix:///var/run/docker.sock
vitest run --project ${tier} --retry 0 ${only} ${files.join(" ")} 2>&1`,
    timeoutMs,
  );
  return printed.slice(printed.lastIndexOf(" Test Files"));
}
