import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { join } from "node:path";
import type { Duplex, Readable } from "node:stream";
import Docker from "dockerode";
import type { EngineHealth } from "../../shared/wire/health.ts";
import { attachStreams } from "./attach.ts";
import { engineError } from "./engine-error.ts";
import { type FilterForm, nextForm, refusesProfile, withFilter } from "./engine-filter.ts";
import { type EngineInfo, hidesLimits, limitsProblem } from "./engine-info.ts";
import { type ImageCalls, imageCalls } from "./image-calls.ts";
import { forPodman, readPodmanInfo } from "./podman.ts";
import { hostScope } from "./host-scope.ts";
import { labels, namePrefix } from "../sandbox/labels.ts";
import { EngineError } from "../sandbox/errors.ts";
import { type VolumeCalls, volumeCalls } from "./volume-calls.ts";

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
export interface CreateCall {
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
  const options = connection(host);
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
        await removal.catch((error: unknown) => {
          const { statusCode } = error as { statusCode?: number };
          if (statusCode !== 404 && statusCode !== 409) throw error;
        });
      }),
    exportFiles: (id, signal) =>
      call(signal, async (abortSignal) => {
        const files = await docker.getContainer(id).export({ abortSignal });
        return files as Readable;
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

function connection(host: string): Docker.DockerOptions {
  if (host.startsWith("unix://")) {
    // The empty host keeps dockerode from preferring DOCKER_HOST.
    return { socketPath: host.slice("unix://".length), host: "" };
  }
  const { hostname, port } = new URL(host.includes("://") ? host : `tcp://${host}`);
  const certificates = process.env["DOCKER_CERT_PATH"];
  if (!process.env["DOCKER_TLS_VERIFY"] || !certificates) {
    return { protocol: "http", host: hostname, port: port || 2375 };
  }
  const read = (name: string): Buffer => readFileSync(join(certificates, name));
  return {
    protocol: "https",
    host: hostname,
    port: port || 2376,
    ca: read("ca.pem"),
    cert: read("cert.pem"),
    key: read("key.pem"),
  };
}
