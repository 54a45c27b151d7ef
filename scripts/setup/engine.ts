import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import net from "node:net";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import Docker from "dockerode";
import {
  defaultEngine,
  engineConnection,
  engineSockets,
  rootPodman,
} from "../../shared/process/engine.node.ts";
import { OperatorError, say } from "../operate/command.ts";
import { hasCommand, installEngine, logTail, runStep, withSetupLock } from "./steps.ts";

export type Engine = {
  /** Its address, such as `unix:///var/run/docker.sock`. */
  dockerHost: string;
  /** Command that stops the engine that this call started. */
  stopCommand?: string;
};

/** Returns an engine that answers; installs and starts one if there is none. */
export async function ensureEngine(dockerHost: string | undefined): Promise<Engine> {
  const search = await findEngine(dockerHost);
  if (search.found) return { dockerHost: search.found };
  const advice = noEngineAdvice(search, thisMachine());
  if (advice) throw new OperatorError(advice);

  return withSetupLock(async () => {
    const again = await findEngine(dockerHost);
    return again.found ? { dockerHost: again.found } : installAndStart();
  });
}

async function installAndStart(): Promise<Engine> {
  if (!hasCommand("dockerd")) await installEngine();
  const registered = hasCommand("runsc") && registerRunsc();
  // The package's scripts may have started dockerd already; on SIGHUP it reloads its runtimes.
  const running = runningDockerd(MACHINE_DOCKERD);
  if (running && registered) process.kill(running.pid, "SIGHUP");

  if (existsSync("/run/systemd/system")) {
    await startService();
    return { dockerHost: defaultEngine, stopCommand: "systemctl stop docker" };
  }
  const pid = await startDockerd(MACHINE_DOCKERD);
  return { dockerHost: defaultEngine, stopCommand: `kill ${pid}` };
}

async function startService(): Promise<void> {
  await runStep({
    title: "starting the docker service (journalctl -u docker tells more)",
    command: "systemctl",
    args: ["start", "docker"],
    logFile: MACHINE_DOCKERD.logFile,
  });
}

function thisMachine(): Machine {
  return {
    platform: process.platform,
    root: process.getuid?.() === 0,
    apt: hasCommand("apt-get"),
    podman: hasCommand("podman"),
  };
}

export type EngineSearch = HostSearch & {
  /** The first engine that answered. */
  found?: string;
  pings: PingResult[];
};

/**
 * Looks for an engine that answers: at `dockerHost` or DOCKER_HOST if set, else on the usual
 * sockets.
 */
export async function findEngine(
  dockerHost: string | undefined,
  env: NodeJS.ProcessEnv = process.env,
): Promise<EngineSearch> {
  const search = engineHosts(dockerHost, env);
  const pings = await Promise.all(search.hosts.map((host) => pingEngine(host)));
  const found = pings.find((ping) => ping.state === "answers")?.host;
  return { ...search, pings, ...(found ? { found } : {}) };
}

type HostSearch = {
  /** Engine addresses in the order to try them, such as `unix:///var/run/docker.sock`. */
  hosts: string[];
  /** The setting that names the engine; then no other engine is tried. */
  setBy?: "docker_host" | "DOCKER_HOST";
};

/** Where to look for an engine: the configured address, else the sockets of Docker and Podman. */
export function engineHosts(dockerHost: string | undefined, env: NodeJS.ProcessEnv): HostSearch {
  if (dockerHost) return { hosts: [dockerHost], setBy: "docker_host" };
  if (env["DOCKER_HOST"]) return { hosts: [env["DOCKER_HOST"]], setBy: "DOCKER_HOST" };
  return { hosts: engineSockets(env) };
}

/** `silent`: something is there, but no engine answers. `denied`: no permission on the socket. */
export type PingResult = {
  host: string;
  state: "answers" | "absent" | "silent" | "denied";
  reason: string;
};

/**
 * A Podman that is started through its socket takes a second or two to answer, ten on a busy
 * machine.
 */
const PING_TIMEOUT_MS = 20_000;

/** Asks the engine at `host` to answer. Never throws. */
export async function pingEngine(host: string, timeoutMs = PING_TIMEOUT_MS): Promise<PingResult> {
  try {
    await connect(host, timeoutMs).ping();
    return { host, state: "answers", reason: "" };
  } catch (error) {
    return { host, ...explain(error as NodeJS.ErrnoException, timeoutMs) };
  }
}

function explain(error: NodeJS.ErrnoException, timeoutMs: number): Omit<PingResult, "host"> {
  switch (error.code ?? "") {
    case "ENOENT":
      return { state: "absent", reason: "no such socket" };
    case "EACCES":
    case "EPERM":
      return { state: "denied", reason: "no permission on the socket" };
    case "ECONNREFUSED":
      return { state: "silent", reason: "nothing listens there" };
    case "ECONNRESET":
      return { state: "silent", reason: `no answer within ${timeoutMs / 1000} s` };
    default:
      return { state: "silent", reason: error.message.trim() };
  }
}

/** A client for the engine at `unix://path`, `tcp://host:port` or `ssh://user@host`. */
export function connect(host: string, timeout?: number): Docker {
  if (!host.startsWith("ssh:")) return new Docker({ ...engineConnection(host), timeout });
  const { username, hostname, port } = new URL(host);
  return new Docker({
    protocol: "ssh",
    host: hostname,
    port: port || 22,
    username: username || "root",
  });
}

export type Machine = {
  platform: NodeJS.Platform;
  root: boolean;
  apt: boolean;
  /** Whether Podman is installed. */
  podman: boolean;
};

/**
 * Explains in two lines what is wrong and what to do if no engine answers and set-up may not
 * install one; undefined if it may.
 */
export function noEngineAdvice(search: EngineSearch, machine: Machine): string | undefined {
  const tried = search.pings.map((ping) => `${ping.host}: ${ping.reason}`).join("; ");
  if (search.setBy) {
    return `${search.setBy} names an engine that does not answer (${tried}).\nStart that engine, or unset ${search.setBy} to use one on this machine.`;
  }
  const denied = search.pings.find(({ host, state }) => state === "denied" && host !== rootPodman);
  if (denied) {
    return `you have no permission on ${denied.host}.\nEither join its group (sudo usermod -aG docker "$USER", then log in again) or run this with sudo.`;
  }
  if (machine.platform === "linux" && machine.root && machine.apt) return undefined;
  return `no container engine answers (${tried}).\n${remedy(search, machine)}`;
}

function remedy(search: EngineSearch, machine: Machine): string {
  if (machine.platform !== "linux") {
    return "Start Docker Desktop, Colima or Podman (set DOCKER_HOST if its socket is elsewhere), then run this again.";
  }
  const silent = search.pings.some(
    (ping) => ping.host === defaultEngine && ping.state === "silent",
  );
  const sudo = machine.root ? "" : "sudo ";
  if (silent) return `Start Docker (${sudo}systemctl start docker), then run this again.`;
  if (machine.podman && !machine.root) {
    return "Start Podman's socket (systemctl --user enable --now podman.socket), then run this again.";
  }
  if (!machine.apt) {
    return "Install Docker or Podman with this system's package manager, then run this again.";
  }
  return 'Run this as root, which installs one, or install it (sudo apt-get install docker.io && sudo usermod -aG docker "$USER"), log in again and run this again.';
}

const DAEMON_JSON = "/etc/docker/daemon.json";

/**
 * `--network=none`: Debian's runsc cannot set up its network on recent kernels, and jobs need none.
 */
const RUNSC = { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] };

type DaemonConfig = { runtimes?: Record<string, unknown>; [key: string]: unknown };

/** The text of daemon.json with the runtime runsc added; undefined if it has that runtime. */
export function addRunsc(text: string | undefined): string | undefined {
  const config = (text?.trim() ? JSON.parse(text) : {}) as DaemonConfig;
  if (config.runtimes?.["runsc"]) return undefined;
  const runtimes = { ...config.runtimes, runsc: RUNSC };
  return `${JSON.stringify({ ...config, runtimes }, null, 2)}\n`;
}

/** Adds runsc to dockerd's configuration. Returns whether the file was changed. */
export function registerRunsc(file = DAEMON_JSON): boolean {
  const before = readIfThere(file);
  let after: string | undefined;
  try {
    after = addRunsc(before);
  } catch (cause) {
    throw new OperatorError(
      `${file} is not valid JSON: correct or remove it, then run this again`,
      {
        cause,
      },
    );
  }
  if (after === undefined) return false;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, after);
  say(`${before === undefined ? "wrote" : "added the runtime runsc to"} ${file}`);
  return true;
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

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

/** The files of one dockerd, and the command and options that start it there. */
export type DockerdPlace = {
  command: string;
  socket: string;
  pidFile: string;
  execRoot: string;
  logFile: string;
  args: string[];
};

/** The machine's own dockerd. No options: dockerd refuses an option that daemon.json also sets. */
export const MACHINE_DOCKERD: DockerdPlace = {
  command: "dockerd",
  socket: "/var/run/docker.sock",
  pidFile: "/var/run/docker.pid",
  execRoot: "/var/run/docker",
  logFile: "/var/log/airlock/dockerd.log",
  args: [],
};

const CONTAINERD_GRACE_MS = 5000;
const SYSTEM_CONTAINERD_SOCKET = "/run/containerd/containerd.sock";

/** The dockerd of the pid file, if it is running. */
export function runningDockerd(place: DockerdPlace): Process | undefined {
  const pid = readPidFile(place.pidFile);
  const found = pid === undefined ? undefined : readProcess(pid);
  return found?.name === "dockerd" ? found : undefined;
}

/**
 * Removes files of a killed dockerd that would keep a new one from starting. Call it only when no
 * dockerd is running. dockerd trusts its pid files: it does not start if the pid belongs to any
 * other program.
 */
async function clearLeftovers(place: DockerdPlace): Promise<void> {
  rmSync(place.pidFile, { force: true });
  await clearContainerd(place);
  await clearStaleSocket(SYSTEM_CONTAINERD_SOCKET);
}

/** Whether this process is the containerd that a dockerd of this place started and left behind. */
export function isOrphan(
  found: Process,
  place: DockerdPlace,
  parent: Process | undefined,
): boolean {
  const config = `${place.execRoot}/containerd/containerd.toml`;
  return found.name === "containerd" && found.args.includes(config) && parent?.name !== "dockerd";
}

async function clearContainerd(place: DockerdPlace): Promise<void> {
  const pidFile = `${place.execRoot}/containerd/containerd.pid`;
  const pid = readPidFile(pidFile);
  const found = pid === undefined ? undefined : readProcess(pid);
  if (found && isOrphan(found, place, readProcess(found.parentPid))) {
    say(`ending the containerd (pid ${found.pid}) that a killed dockerd left`);
    await end(found.pid);
  }
  rmSync(pidFile, { force: true });
}

async function end(pid: number): Promise<void> {
  process.kill(pid, "SIGTERM");
  const deadline = performance.now() + CONTAINERD_GRACE_MS;
  while (readProcess(pid)) {
    if (performance.now() > deadline) process.kill(pid, "SIGKILL");
    await sleep(50);
  }
}

/** If this socket exists, dockerd tries to use the containerd behind it. */
async function clearStaleSocket(path: string): Promise<void> {
  const socket = net.connect(path);
  try {
    await once(socket, "connect");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ECONNREFUSED") rmSync(path, { force: true });
  } finally {
    socket.destroy();
  }
}

export type Process = { pid: number; name: string; args: string[]; parentPid: number };

/** A running process from /proc; undefined if there is none or it is a zombie. */
export function readProcess(pid: number): Process | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state, parentPid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (state === "Z") return undefined;
    const name = stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
    const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
    return { pid, name, args, parentPid: Number(parentPid) };
  } catch {
    return undefined;
  }
}

/** The pid in a pid file; undefined if the file is missing or has no valid pid. */
export function readPidFile(path: string): number | undefined {
  try {
    const pid = Number(readFileSync(path, "utf8").trim());
    return Number.isSafeInteger(pid) && pid > 1 ? pid : undefined;
  } catch {
    return undefined;
  }
}
