import { randomUUID } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { join } from "node:path";
import type { Duplex, Readable } from "node:stream";
import Docker from "dockerode";
import {
  defaultEngine,
  engineConnection,
  engineSockets,
  socketOf,
} from "../../shared/process/engine.node.ts";
import { freed } from "../../shared/process/parts.node.ts";
import type { EngineHealth } from "../../shared/wire/health.ts";
import { hostScope } from "../host/alive.ts";
import { engineDemux, type Link } from "../sandbox/frames.ts";
import { EngineError, type EngineErrorCode, labels, namePrefix } from "../sandbox/sandbox.ts";
import { type Call, type ImageCalls, imageCalls } from "./images.ts";

export interface ContainerState {
  readonly isRunning: boolean;
  readonly exitCode: number;
  readonly outOfMemory: boolean;
}

export interface ContainerEntry {
  readonly id: string;
  readonly name: string;
  readonly isRunning: boolean;
  readonly labels: Readonly<Record<string, string>>;
}

/** The body of a create call; its labels name the agent. Source: Docker Engine API 1.41, ContainerCreate. */
interface CreateCall {
  readonly Image: string;
  readonly Labels: Readonly<Record<string, string>> & Record<typeof labels.agentId, string>;
  readonly HostConfig: { readonly SecurityOpt: readonly string[] };
}

/** A container engine. Every method throws EngineError, or its signal's reason on abort. */
export interface Engine extends ImageCalls, VolumeCalls {
  /** Returns when the engine answers; costs the engine almost nothing. */
  ping(signal: AbortSignal): Promise<void>;
  /** The engine's version and its runtimes. */
  describe(signal: AbortSignal): Promise<EngineHealth>;
  /** Returns the container's id. */
  create(call: CreateCall, signal: AbortSignal): Promise<string>;
  /** The container's stdin, and its stdout and stderr multiplexed; see `engineDemux`. */
  attach(id: string, signal: AbortSignal): Promise<Duplex>;
  start(id: string, signal: AbortSignal): Promise<void>;
  /** Returns when the container has stopped. */
  wait(id: string, signal: AbortSignal): Promise<void>;
  inspect(id: string, signal: AbortSignal): Promise<ContainerState>;
  /**
   * Whether the engine reports within a second that a process of the container ran out of memory.
   */
  tellsOutOfMemory(id: string, signal: AbortSignal): Promise<boolean>;
  /** Kills and removes the container; it is no error if there is none. */
  remove(id: string, signal: AbortSignal): Promise<void>;
  /** The files of a container as a tar. */
  exportFiles(id: string, signal: AbortSignal): Promise<Readable>;
  /** What a container has at a path, as a tar; null for nothing. */
  readPath(id: string, path: string, signal: AbortSignal): Promise<Readable | null>;
  /** Unpacks a tar in a container's root folder. */
  writeFiles(id: string, tar: Buffer, signal: AbortSignal): Promise<void>;
  /** Containers in any state that carry the label `name=value`. */
  list(name: string, value: string, signal: AbortSignal): Promise<ContainerEntry[]>;
}

/** Docker reports the kernel's kill up to 220 ms after the end of the container. */
const outOfMemoryLagMs = 1000;
const ownFilter =
  "the engine takes no seccomp profile: its own filter applies instead of Airlock's";

/**
 * The engine at `unix://path` or `tcp://host:port`; DOCKER_TLS_VERIFY and DOCKER_CERT_PATH set TLS.
 * `folder` holds files that an engine on this host reads.
 */
export function connectEngine(
  host: string,
  warn: (message: string) => void = () => {},
  folder?: string,
): Engine {
  let filterForm: FilterForm = "text";
  let filterVersion = 0;
  const filterFile = folder === undefined ? null : join(folder, "seccomp.json");
  let isPodman = false;
  const options: Docker.DockerOptions = engineConnection(host);
  const docker = new Docker(options);
  // Uses a new connection for each call: an engine that shuts down still answers on open
  // connections.
  const agent = options.protocol === "https" ? new HttpsAgent() : new HttpAgent();
  const anew = new Docker({ ...options, agent } as Docker.DockerOptions);
  // dockerode's types leave out the options of these calls.
  type Ask<T> = (options: { abortSignal: AbortSignal }) => Promise<T>;
  const ping = anew.ping.bind(anew) as unknown as Ask<unknown>;
  const readInfo = anew.info.bind(anew) as unknown as Ask<EngineInfo>;

  return {
    ping: (signal) =>
      call(signal, async (abortSignal) => {
        await ping({ abortSignal });
      }),
    describe: (signal) =>
      call(signal, async (abortSignal) => {
        const info = await readInfo({ abortSignal });
        const podman = hidesLimits(info) ? await readPodmanInfo(anew, abortSignal) : undefined;
        const problem = limitsProblem(info, podman);
        if (problem !== null) throw new EngineError("other", problem);
        isPodman = info.BuildahVersion !== undefined;
        const { ServerVersion, DefaultRuntime, Runtimes = {} } = info;
        const runtimes = new Set([DefaultRuntime ?? [], Object.keys(Runtimes)].flat());
        return { available: true, version: ServerVersion, runtimes: [...runtimes] };
      }),
    create: (profile, signal) =>
      call(signal, async (abortSignal) => {
        const fitted = isPodman ? forPodman(profile) : profile;
        for (;;) {
          const form = filterForm;
          const version = filterVersion;
          const name = `${namePrefix(profile.Labels[labels.agentId])}${randomUUID()}`;
          // Query and body apart: otherwise dockerode would repeat the whole profile in the
          // address.
          const filtered = withFilter(fitted, form, filterFile);
          const Labels = { ...filtered.Labels, [labels.hostScope]: hostScope };
          const _body = { ...filtered, Labels };
          const request = { _query: { name }, _body, abortSignal };
          try {
            return (await docker.createContainer(request)).id;
          } catch (error) {
            if (form === "none" || !refusesProfile(engineError(error))) throw error;
            // Another call has changed the form in the meantime.
            if (version !== filterVersion) continue;
            filterVersion += 1;
            filterForm = nextForm(form, fitted, filterFile);
            if (filterForm === "none") warn(ownFilter);
          }
        }
      }),
    attach: (id, signal) =>
      call(signal, async (abortSignal) => attachStreams(docker, id, abortSignal)),
    start: (id, signal) =>
      call(signal, async (abortSignal) => {
        await docker.getContainer(id).start({ abortSignal });
      }),
    wait: (id, signal) =>
      call(signal, async (abortSignal) => {
        await docker.getContainer(id).wait({ condition: "not-running", abortSignal });
      }),
    inspect: (id, signal) =>
      call(signal, async (abortSignal) => {
        const { State } = await docker.getContainer(id).inspect({ abortSignal });
        return {
          isRunning: State.Running,
          exitCode: State.ExitCode,
          outOfMemory: State.OOMKilled,
        };
      }),
    tellsOutOfMemory: (id, signal) =>
      call(signal, async (abortSignal) => {
        const filters = { container: [id], event: ["oom"] };
        const events = (await docker.getEvents({ since: 1, filters, abortSignal })) as Readable;
        const enough = setTimeout(() => events.destroy(), outOfMemoryLagMs);
        try {
          for await (const _ of events) return true;
          return false;
        } catch {
          return false;
        } finally {
          clearTimeout(enough);
        }
      }),
    remove: (id, signal) =>
      call(signal, async (abortSignal) => {
        const removal = docker.getContainer(id).remove({ force: true, v: true, abortSignal });
        await removal.catch(unlessGone);
      }),
    exportFiles: (id, signal) =>
      call(signal, async (abortSignal) => {
        const files = await docker.getContainer(id).export({ abortSignal });
        return files as Readable;
      }),
    readPath: (id, path, signal) =>
      call(signal, async (abortSignal) => {
        const request = { path, abortSignal };
        const found = docker.getContainer(id).getArchive(request) as Promise<unknown>;
        return (await found.catch((error: { statusCode?: number }) => {
          if (error.statusCode === 404) return null;
          throw error;
        })) as Readable | null;
      }),
    writeFiles: (id, tar, signal) =>
      call(signal, async (abortSignal) => {
        await docker.getContainer(id).putArchive(tar, { path: "/", abortSignal });
      }),
    list: (name, value, signal) =>
      call(signal, async (abortSignal) => {
        const filters = labelFilter(name, value);
        const found = await docker.listContainers({ all: true, filters, abortSignal });
        return found.map(({ Id, Names, State, Labels }) => ({
          id: Id,
          name: Names[0]?.replace(/^\//, "") ?? "",
          isRunning: State === "running",
          labels: Labels,
        }));
      }),
    ...imageCalls(docker, call),
    ...volumeCalls(docker, call),
  };
}

/**
 * Makes one request to the engine with a signal of its own: the caller's signal may be aborted long
 * after the answer, and would then close an attached stream.
 */
async function call<T>(
  signal: AbortSignal,
  request: (abortSignal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const own = new AbortController();
  const abort = (): void => own.abort();
  signal.addEventListener("abort", abort);
  try {
    return await request(own.signal);
  } catch (error) {
    signal.throwIfAborted();
    throw engineError(error);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function labelFilter(name: string, value: string): { label: string[] } {
  return { label: [`${name}=${value}`] };
}

/** A request on dockerode's connection, with the options used here. */
type Dial = (
  request: {
    path: string;
    method: "POST";
    options: { _query: Record<string, boolean> };
    file: Buffer;
    headers: Record<string, string>;
    hijack: true;
    isStream: true;
    openStdin: false;
    statusCodes: Record<number, true | string>;
    abortSignal: AbortSignal;
  },
  callback: (error: Error | null, stream: Duplex) => void,
) => void;

/**
 * Opens a container's stdin, and its stdout and stderr multiplexed. dockerode's own call is not
 * used: it sends a body, which Podman passes to the container as input. Source: Docker Engine API
 * 1.41, ContainerAttach.
 */
async function attachStreams(
  docker: Docker,
  id: string,
  abortSignal: AbortSignal,
): Promise<Duplex> {
  const modem = docker.modem as { dial: Dial };
  return new Promise((resolve, reject) => {
    const request = {
      path: `/containers/${id}/attach?`,
      method: "POST",
      options: { _query: { stream: true, stdin: true, stdout: true, stderr: true } },
      // Sends Content-Length: 0. Without it the body would be an empty chunked one, which is five
      // bytes long.
      file: Buffer.alloc(0),
      headers: {},
      hijack: true,
      isStream: true,
      openStdin: false,
      statusCodes: { 200: true, 404: "no such container", 500: "server error" },
      abortSignal,
    } as const;
    modem.dial(request, (error, stream) => (error ? reject(error) : resolve(stream)));
  });
}

/** The link to PID 1 of an attached container: its stdin, its stdout, and the last bytes of its stderr. */
export function linkOf(stream: Duplex): Link {
  let diagnostics = "";
  stream.on("error", () => {});

  async function* output(): AsyncGenerator<Uint8Array> {
    const demux = engineDemux();
    for await (const chunk of freed(stream) as AsyncIterable<Buffer>) {
      for (const { stream: name, bytes } of demux(chunk)) {
        if (name === "stdout") yield bytes;
        else diagnostics = (diagnostics + bytes.toString("utf8")).slice(-4096);
      }
    }
  }
  return {
    input: stream,
    output: output(),
    diagnostics: () => diagnostics,
    destroy: () => stream.destroy(),
  };
}

/** A volume of one agent. If agents share it, `agentName` is empty. */
export interface VolumeEntry {
  readonly name: string;
  readonly agentName: string;
}

/** What an engine does with volumes. Every method throws EngineError, or its signal's reason on abort. */
export interface VolumeCalls {
  /** Makes a volume for an agent, unless it exists. With an empty `agentName`, all agents share it. */
  createVolume(name: string, agentName: string, signal: AbortSignal): Promise<void>;
  /** Volumes of agents that no container uses, whether it runs or not. */
  unusedVolumes(signal: AbortSignal): Promise<VolumeEntry[]>;
  /** Removes a volume, unless a container uses it. A missing volume is no error. */
  removeVolume(name: string, signal: AbortSignal): Promise<void>;
}

/** Throws the error of a removal, unless there is nothing to remove, or it is used or being removed. */
function unlessGone(error: { readonly statusCode?: number }): void {
  if (error.statusCode !== 404 && error.statusCode !== 409) throw error;
}

function volumeCalls(docker: Docker, call: Call): VolumeCalls {
  return {
    createVolume: (name, agentName, signal) =>
      call(signal, async (abortSignal) => {
        await docker.createVolume({
          Name: name,
          Labels: { [labels.agentName]: agentName },
          abortSignal,
        });
      }),
    unusedVolumes: (signal) =>
      call(signal, async (abortSignal) => {
        const filters = { label: [labels.agentName], dangling: ["true"] };
        const { Volumes } = await docker.listVolumes({ filters, abortSignal });
        return (Volumes ?? []).map(({ Name, Labels }) => ({
          name: Name,
          agentName: Labels[labels.agentName] ?? "",
        }));
      }),
    removeVolume: (name, signal) =>
      call(signal, async (abortSignal) => {
        await docker.getVolume(name).remove({ abortSignal }).catch(unlessGone);
      }),
  };
}

/**
 * What the engine's client throws: an answer with an error status, or a failure without an answer.
 */
interface ClientError {
  readonly message: string;
  readonly statusCode?: number;
}

/**
 * Translates an error of the engine's client to an EngineError; only this file knows the engine's
 * wording.
 */
function engineError(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  const { message, statusCode } = error as ClientError;
  return new EngineError(codeOf(message, statusCode), message.trim(), {
    cause: error,
    transient: statusCode === undefined || statusCode >= 500,
  });
}

/** @throws EngineError always: a container of the agent itself failed and wrote this to stderr. */
export function failedContainer(what: string, stderr: string): never {
  throw new EngineError(isDiskFull(stderr) ? "disk_full" : "other", `${what}: ${stderr.trim()}`);
}

/** Matches the messages of the C library, which engines and Python pass on. */
function isDiskFull(message: string): boolean {
  return /no space left on device|disk quota exceeded/i.test(message);
}

function codeOf(message: string, statusCode: number | undefined): EngineErrorCode {
  if (statusCode === undefined) return "unavailable";
  if (statusCode >= 500 && isDiskFull(message)) return "disk_full";
  if (statusCode === 404 && /no such image|image not known/i.test(message)) {
    return "image_not_found";
  }
  // The messages of runc and of gVisor.
  if (/executable file not found|exec(utable)?:? .*no such file or directory/i.test(message)) {
    return "command_not_found";
  }
  return statusCode === 409 ? "conflict" : "other";
}

/**
 * The fields of an engine's answer to GET /info that are used here. Source: Docker Engine API 1.41,
 * Podman 4.3.
 */
interface EngineInfo {
  readonly ServerVersion: string;
  readonly DefaultRuntime?: string;
  readonly Runtimes?: Readonly<Record<string, unknown>>;
  readonly CgroupVersion?: string;
  readonly MemoryLimit?: boolean;
  readonly CpuCfsQuota?: boolean;
  readonly PidsLimit?: boolean;
  /** Docker says here that it is rootless. */
  readonly SecurityOptions?: readonly string[];
  /** Podman says here that it is rootless. */
  readonly Rootless?: boolean;
  /** Only Podman sets this. */
  readonly BuildahVersion?: string;
}

/**
 * The fields of an engine's answer to GET /libpod/info that are used here. Source: Podman 4.0 API.
 */
interface PodmanInfo {
  readonly host?: { readonly cgroupControllers?: readonly string[] };
}

const limitsRemedy = "start the host with cgroup v2 and let the engine's user have its controllers";

const controllerOf = { memory: "memory", cpu: "CPU", pids: "processes" };

/**
 * Whether /info does not say which limits the engine enforces. On cgroup v2 Podman always reports
 * memory and process limits and no CPU limit there; the controllers in its own info are right.
 */
function hidesLimits(info: EngineInfo): boolean {
  return info.BuildahVersion !== undefined && info.CgroupVersion === "2";
}

/**
 * Why jobs on this engine would run without limits; null if the engine enforces them. A rootless
 * Podman on cgroup v1 accepts limits and reports them, but does not enforce them.
 */
function limitsProblem(info: EngineInfo, podman?: PodmanInfo): string | null {
  const isRootless = info.Rootless === true || info.SecurityOptions?.includes("name=rootless");
  if (isRootless && info.CgroupVersion === "1") {
    return `the engine is rootless on cgroup v1, where it holds none of a job's limits: ${limitsRemedy}, or run the engine as root`;
  }
  const missing = hidesLimits(info) ? missingControllers(podman) : missingLimits(info);
  if (missing.length === 0) return null;
  return `the engine cannot limit a job's ${missing.join(", ")}: ${limitsRemedy}`;
}

function missingLimits(info: EngineInfo): string[] {
  const limits = { memory: info.MemoryLimit, CPU: info.CpuCfsQuota, processes: info.PidsLimit };
  return Object.entries(limits).flatMap(([what, held]) => (held === false ? what : []));
}

function missingControllers(podman: PodmanInfo | undefined): string[] {
  const controllers = podman?.host?.cgroupControllers ?? [];
  return Object.entries(controllerOf).flatMap(([controller, what]) =>
    controllers.includes(controller) ? [] : what,
  );
}

interface Mounted {
  readonly HostConfig: object;
}

interface Settings {
  readonly ReadonlyRootfs?: boolean;
  readonly Tmpfs?: Readonly<Record<string, string>>;
  readonly SecurityOpt?: readonly string[];
  readonly MaskedPaths?: readonly string[];
}

/**
 * The profile in Podman's terms. Podman adds mounts of unlimited size to read-only containers: a
 * world-writable /var/tmp, and with Podman 5 a /run/lock. It ignores an empty list of masked paths.
 */
export function forPodman<T extends Mounted>(profile: T): T {
  const HostConfig: Settings = profile.HostConfig;
  const { ReadonlyRootfs, Tmpfs, SecurityOpt = [], MaskedPaths } = HostConfig;
  const closed = "ro,nosuid,nodev,noexec";
  return {
    ...profile,
    HostConfig: {
      ...HostConfig,
      ...(ReadonlyRootfs && { Tmpfs: { ...Tmpfs, "/var/tmp": closed, "/run/lock": closed } }),
      ...(MaskedPaths?.length === 0 && { SecurityOpt: [...SecurityOpt, "unmask=ALL"] }),
    },
  };
}

/** Reads Podman's own info; every Podman from 4.0 on answers at this address. */
function readPodmanInfo(docker: Docker, abortSignal: AbortSignal): Promise<PodmanInfo> {
  return new Promise((resolve, reject) => {
    const statusCodes = { 200: true, 500: "server error" };
    const request = { path: "/v4.0.0/libpod/info", method: "GET", statusCodes, abortSignal };
    docker.modem.dial(request, (error, info) => {
      if (error) reject(error);
      else resolve(info as PodmanInfo);
    });
  });
}

/**
 * How the filter of system calls is passed to the engine, best first: as text, as a file, or not at
 * all.
 */
type FilterForm = "text" | "file" | "none";

interface Filtered {
  readonly HostConfig: { readonly SecurityOpt: readonly string[] };
}

const prefix = "seccomp={";

/**
 * Podman takes the seccomp profile in a create call as a file name, and refuses it. Source:
 * github.com/containers/podman issue 27710.
 */
function refusesProfile({ message }: EngineError): boolean {
  return /seccomp profile.*(file name too long|no such file|permission denied)/is.test(message);
}

/**
 * The form to try after the engine has refused one. `file` is a path that the engine can read. If
 * the file has been removed since, for example by a cleaner of temporary files, it is written
 * again; the filter stays on.
 */
function nextForm(form: FilterForm, profile: Filtered, file: string | null): FilterForm {
  const text = profile.HostConfig.SecurityOpt.find((option) => option.startsWith(prefix));
  if (text === undefined || file === null) return "none";
  if (form === "file" && existsSync(file)) return "none";
  writeFileSync(file, text.slice("seccomp=".length));
  return "file";
}

/** The profile with its filter in another form. */
function withFilter<T extends Filtered>(profile: T, form: FilterForm, file: string | null): T {
  if (form === "text") return profile;
  const SecurityOpt = profile.HostConfig.SecurityOpt.flatMap((option) => {
    if (!option.startsWith(prefix)) return option;
    return form === "none" ? [] : `seccomp=${file}`;
  });
  return { ...profile, HostConfig: { ...profile.HostConfig, SecurityOpt } };
}

/**
 * The address of the engine: `configured`, else DOCKER_HOST, else the first socket of Docker or
 * Podman that exists.
 */
export function engineHost(
  configured: string | undefined,
  env: NodeJS.ProcessEnv,
  exists: (path: string) => boolean = existsSync,
): string {
  const found = () => engineSockets(env).find((address) => exists(socketOf(address)));
  return configured || env["DOCKER_HOST"] || (found() ?? defaultEngine);
}
