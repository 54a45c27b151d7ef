import { createHash } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import type { Duplex } from "node:stream";
import type { Logger } from "@logtape/logtape";
import { z } from "zod";
import { type BuildStep, type ReadyStep, resolveSteps, titleOf } from "../../shared/dockerfile.ts";
import { describeError } from "../../shared/log-line.ts";
import type { ExecutionError, ExecutionErrorType } from "../../shared/wire/errors.ts";
import {
  type AgentIdentity,
  type BuildLogChunk,
  type BuildReport,
  type LeasedBuild,
} from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import { commonProfile } from "../backends/profiles.ts";
import type { Client } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import type { Engine } from "../engine/engine.ts";
import type { ImageEntry } from "../engine/images.ts";
import type { EngineMonitor } from "../engine/health.ts";
import { type Admission, type BuildLimits, JobRefusal } from "../host/policy.ts";
import {
  FURNISHED,
  type Images,
  type Inventory,
  REPOSITORY,
  STANDS_IN_FOR,
  STEP,
  TENANT,
} from "../images/images.ts";
import { PushError } from "../images/transfer.ts";
import {
  caVariables,
  CERTIFICATES,
  NPM_SECRETS,
  createPackageProxy,
  type PipConfig,
  readPackageSource,
} from "../packages/proxy.ts";
import { installerProgram, pipRunner } from "../python/program.ts";
import { engineDemux, frameDecoder, parseMessage } from "../sandbox/frames.ts";
import { explainPipFailure, openTunnel, withHint } from "../sandbox/install-packages.ts";
import { InstallError } from "../sandbox/job.ts";
import { EngineError, labels, type SandboxLabels, variablesOf } from "../sandbox/sandbox.ts";
import { type Clock, deadline } from "../waiting.ts";
import { type Lease, LeaseDropped } from "../work/leases.ts";

export type MakeImage = (
  order: Omit<ImageRequest, "limits">,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
) => Promise<MadeImage>;

/**
 * Uploads an image to where other agents fetch it; returns its digest in the registry, if it is in
 * one.
 */
export type ShareImage = (
  build: LeasedBuild,
  image: string,
  say: (words: string) => void,
  signal: AbortSignal,
) => Promise<string | null>;

export type BuildDeps = {
  readonly agent: AgentIdentity;
  readonly admission: Admission;
  readonly client: Pick<Client, "buildLogs" | "buildResult" | "buildRelease">;
  readonly images: Images;
  readonly inventory: Inventory;
  readonly engine: EngineMonitor;
  readonly makeImage: MakeImage;
  readonly shareImage: ShareImage;
  readonly pip: PipConfig;
  readonly clock: Clock;
  readonly log: Logger;
};

type Outcome =
  | { readonly kind: "result"; readonly report: BuildReport }
  /** Another attempt may succeed. */
  | { readonly kind: "release"; readonly error: ExecutionError; readonly agentStops?: true };

/**
 * Builds one leased image, from its base image to the posted report.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function runBuild(agent: BuildDeps, lease: Lease<LeasedBuild>): Promise<void> {
  const log = agent.log.with({ correlationId: lease.job.correlation_id });
  const deps = { ...agent, log };
  const outcome = await attempt(deps, lease);
  await post(deps, lease, outcome);
}

async function attempt(deps: BuildDeps, lease: Lease<LeasedBuild>): Promise<Outcome> {
  const { clock, engine, inventory, log } = deps;
  const { job, drop, cancel } = lease;
  const buildLog = createBuildLog(clock, (chunk) => sendLog(deps, lease, chunk));
  using limit = deadline(clock, job.timeout_s * 1000);
  try {
    const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
    const { digest, pythonVersion } = await build(deps, job, buildLog, signal);
    engine.recordSuccess();
    const say = (words: string): void => buildLog.add(Buffer.from(words));
    const manifestDigest = await deps.shareImage(job, digest, say, signal);
    inventory.add(digest);
    const made = { digest, python_version: pythonVersion, manifest_digest: manifestDigest };
    return { kind: "result", report: { status: "built", ...made } };
  } catch (error) {
    if (limit.signal.aborted) {
      return failed("timeout", `The build did not end within ${job.timeout_s} s (build_timeout).`);
    }
    if (cancel.signal.aborted) {
      const message = "The agent stopped before the build ended.";
      const error = { type: "service_unavailable", message, phase: "startup" } as const;
      return { kind: "release", error, agentStops: true };
    }
    if (error instanceof BuildError) return failed("build_error", error.message);
    if (error instanceof InstallError) return failed("dependency_error", error.message);
    if (error instanceof PushError) {
      log.warn("{reason}", { reason: error.message });
      return release("docker_error", error.message);
    }
    if (error instanceof JobRefusal) {
      log.warn("build of {image} refused: {reason}", {
        image: job.job_type,
        reason: error.message,
      });
      return failed(error.type, error.message);
    }
    return outcomeOfFault(deps, lease, error);
  } finally {
    await buildLog.close().catch(() => {});
  }
}

async function build(
  { agent, admission, images, pip, makeImage }: BuildDeps,
  job: LeasedBuild,
  buildLog: BuildLog,
  signal: AbortSignal,
): Promise<MadeImage> {
  await admission.admitBuild(job, signal);
  // A build uses the current base image.
  images.forget(job.base_image);
  const baseImage = await images.resolve(job.base_image, signal);
  const { files, env, hosts } = await readPackageSource(pip);
  const serve = createPackageProxy({ ...hosts, files: [] }, (words) =>
    buildLog.add(Buffer.from(`Could not be reached: ${words}\n`)),
  );
  buildLog.add(Buffer.from(`Building on ${job.base_image} (${baseImage})\n`));
  const { steps, fresh, repository, tags, job_type: jobType } = job;
  const owner = { agentId: agent.id, agentName: agent.name, leaseId: job.lease_id };
  const image = { baseImage, steps, fresh, jobType, repository, tags, owner, tenant: job.tenant };
  const onStep = buildLog.begin;
  return makeImage({ ...image, files, env, serve, onStep }, buildLog.add, signal);
}

async function sendLog(
  { client }: BuildDeps,
  { job, drop }: Lease<LeasedBuild>,
  chunk: Parameters<Client["buildLogs"]>[1],
): Promise<void> {
  try {
    await client.buildLogs(job.lease_id, chunk, drop.signal);
  } catch (error) {
    if (error instanceof ApiError && error.kind === "lease_lost") {
      drop.abort(new LeaseDropped("the API gave the lease up"));
    }
    throw error;
  }
}

function outcomeOfFault(
  { engine, log }: BuildDeps,
  { drop }: Lease<LeasedBuild>,
  error: unknown,
): Outcome {
  const reason = describeError(error);
  if (!drop.signal.aborted) {
    log.error("build failed: {reason}", { reason });
    engine.checkSoon();
  }
  if (!(error instanceof EngineError)) return release("internal_error", "The build failed.");
  if (!error.transient) return failed("docker_error", reason);
  engine.recordFailure();
  return release("docker_error", reason);
}

async function post(
  { client, log }: BuildDeps,
  lease: Lease<LeasedBuild>,
  outcome: Outcome,
): Promise<void> {
  const { job, drop } = lease;
  const { lease_id, job_type, tags } = job;
  const what = { image: `${job_type} ${tags[0]}` };
  try {
    drop.signal.throwIfAborted();
    lease.isReporting = true;
    if (outcome.kind === "release") {
      const { error, agentStops: agent_stops } = outcome;
      await client.buildRelease(lease_id, { error, agent_stops }, drop.signal);
      log.warn("build of {image} released: {reason}", { ...what, reason: outcome.error.message });
    } else {
      await client.buildResult(lease_id, outcome.report, drop.signal);
      log.info("build of {image} {status}", { ...what, status: outcome.report.status });
    }
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    const reason = describeError(drop.signal.aborted ? drop.signal.reason : error);
    log.warn("build of {image} dropped: {reason}", { ...what, reason });
  }
}

function failed(type: ExecutionErrorType, message: string): Outcome {
  const error = { type, message, phase: "startup" } as const;
  return { kind: "result", report: { status: "failed", error } };
}

function release(type: ExecutionErrorType, message: string): Outcome {
  return { kind: "release", error: { type, message, phase: "startup" } };
}

interface MadeImage {
  /** `sha256:…` */
  readonly digest: string;
  readonly pythonVersion: string;
}

/** What a frame P says: the step that begins, from 1, and at the end the version of Python. */
const Word = z.union([
  z.object({ step: z.int().min(1) }),
  z.object({ python_version: z.string().regex(/^3\.[0-9]+\.[0-9]+$/) }),
]);

/** Timeout of an engine call without another limit, in ms. */
const callMs = 30_000;
/** Bytes of the end of the log that are searched for errors. */
const tailBytes = 64 * 1024;

/** A command or a file of the job type's `dockerfile` failed. */
export class BuildError extends InstallError {}

/**
 * Makes an image: a container runs a step and is committed, and the next one starts from there. Its layers hold what
 * the steps wrote and nothing else: secrets and package files come over the container's stdin and stay in memory and
 * on a volume, and no container or volume is left. A build begins behind the steps whose result the engine has.
 *
 * @throws InstallError; EngineError; the signal's reason.
 */
export async function makeImage(
  engine: Engine,
  request: ImageRequest,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<MadeImage> {
  signal.throwIfAborted();
  const say = (words: string): void => onLog(Buffer.from(`${words}\n`));
  const its = await engine.imageEnvironment(request.baseImage, signal);
  const { steps, notes } = resolveSteps(request.steps, variablesOf(its));
  notes.forEach(say);
  const left = layersOf(steps);
  let image = request.baseImage;
  const images = await engine.imageList(signal);
  const known = request.fresh ? [] : images;
  const baseBytes = images.find(({ id }) => id === request.baseImage)?.sizeBytes ?? 0;
  for (let layer = left[0]; layer; layer = left[0]) {
    const key = keyOf(image, layer, request);
    const isResult = ({ parentId, labels: its }: ImageEntry): boolean =>
      // Images that others have derived from it inherit the label.
      its[STEP] === key && parentId === image;
    const found = known.filter(isResult).sort((a, b) => b.createdMs - a.createdMs)[0];
    if (!found) break;
    for (const { number } of layer) say(`${headOf(request.steps, number)} (done before)`);
    image = found.id;
    left.shift();
  }
  let made: MadeImage;
  do {
    const layer = left.shift() ?? [];
    made = await makeLayer(
      engine,
      { ...request, baseBytes, image, layer, isLast: left.length === 0 },
      onLog,
      signal,
    );
    image = made.digest;
  } while (left.length > 0);
  for (const tag of request.tags) await engine.tag(image, request.repository, tag, signal);
  return made;
}

/** Steps that run in one container: one that runs a command, or all adjacent ones without a command. */
type Layer = readonly ReadyStep[];

const runsCommand = (layer: Layer): boolean => layer.some(({ kind }) => kind === "run");

/** Whether a step installs packages that a tenant has named. */
const isOwn = (layer: Layer): boolean => layer.some((step) => "own" in step && step.own === true);

const isPlain = ({ kind }: ReadyStep): boolean => kind === "file" || kind === "set";

function layersOf(steps: readonly ReadyStep[]): Layer[] {
  const layers: ReadyStep[][] = [];
  for (const step of steps) {
    const last = layers.at(-1);
    if (last && isPlain(step) && isPlain(last[0]!)) last.push(step);
    else layers.push([step]);
  }
  return layers;
}

/** What the result of steps depends on; not where their lines stand. */
function keyOf(image: string, layer: Layer, { env, files, tenant }: ImageRequest): string {
  const what = layer.map((step) => ({ ...step, number: 0, line: 0, shown: "" }));
  // Other credentials for an index do not make it another one.
  const settings = Object.entries(env).map(([name, value]) =>
    name.startsWith(NPM_SECRETS) ? "" : value.replace(/\/\/[^/@]*@/, "//"),
  );
  const wheels = files.map(({ name, sizeBytes, changedMs }) => [name, sizeBytes, changedMs]);
  // Else a tenant would see in its log what another one has installed.
  const whose = isOwn(layer) ? [tenant] : [];
  const all = JSON.stringify([image, what, Object.keys(env), settings, wheels, ...whose]);
  return createHash("sha256").update(all).digest("hex");
}

type LayerRequest = ImageRequest & {
  readonly baseBytes: number;
  readonly image: string;
  readonly layer: Layer;
  readonly isLast: boolean;
};

async function makeLayer(
  engine: Engine,
  request: LayerRequest,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<MadeImage> {
  // The signal does not abort this call: the engine would still create the container, and nobody
  // would know its id.
  const id = await createContainer(engine, request);
  try {
    const pythonVersion = await install(engine, id, request, onLog, signal);
    const digest = await engine.commit(id, "", "", imageChanges(request), signal);
    await requireSize(engine, digest, request, signal);
    return { digest, pythonVersion };
  } finally {
    // If the removal fails, the reaper removes the container later.
    await engine.remove(id, AbortSignal.timeout(callMs)).catch(() => {});
  }
}

/** Few engines limit what a container writes. @throws InstallError */
async function requireSize(
  engine: Engine,
  digest: string,
  request: LayerRequest,
  signal: AbortSignal,
): Promise<void> {
  const { image, layer, baseBytes, tenant, limits } = request;
  const found = await engine.imageList(signal, `${STEP}=${keyOf(image, layer, request)}`);
  const bytes = (found.find(({ id }) => id === digest)?.sizeBytes ?? 0) - baseBytes;
  const ofTenant = tenant === undefined ? 0 : await bytesOfTenant(engine, tenant, signal);
  const fault =
    bytes > limits.diskBytes
      ? `The build has added ${bytes} bytes to its base image, more than the agent's max_built_bytes (${limits.diskBytes}).`
      : ofTenant > limits.tenantBytes
        ? `Images of tenant ${tenant} would take ${ofTenant} bytes of the agent's host, and may take ${limits.tenantBytes}: delete a job type, or wait until the agent has removed images that were replaced.`
        : undefined;
  if (fault === undefined) return;
  await engine.removeName(digest, signal);
  throw new InstallError(fault);
}

/** Bytes of an engine's images that a tenant's packages take. */
async function bytesOfTenant(engine: Engine, tenant: string, signal: AbortSignal) {
  const images = await engine.imageList(signal);
  const sizes = new Map(images.map(({ id, sizeBytes }) => [id, sizeBytes] as const));
  return images
    .filter(({ labels: its }) => its[TENANT] === tenant)
    .reduce((sum, { sizeBytes, parentId }) => sum + sizeBytes - (sizes.get(parentId) ?? 0), 0);
}

/** Engines that cannot limit a container's files: most can only on XFS with project quotas. */
const withoutDiskBound = new WeakSet<Engine>();

async function createContainer(engine: Engine, request: LayerRequest): Promise<string> {
  const boundsDisk = !withoutDiskBound.has(engine);
  try {
    const profile = buildProfile(request, { boundsDisk });
    return await engine.create(profile, AbortSignal.timeout(callMs));
  } catch (error) {
    const isRefused = /storage.?opt|quota|backing.?fs/i.test(describeError(error));
    if (!boundsDisk || !isRefused) throw error;
    withoutDiskBound.add(engine);
    return createContainer(engine, request);
  }
}

/** Runs the steps in the container, and returns the version of its Python. */
async function install(
  engine: Engine,
  id: string,
  request: LayerRequest,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<string> {
  const stream = await engine.attach(id, signal);
  stream.on("error", () => {});
  const giveUp = (): void => void stream.destroy();
  signal.addEventListener("abort", giveUp);
  try {
    await engine.start(id, signal);
    // A container that ends early closes the stream; its exit code says why.
    void send(stream, request).catch(giveUp);
    const { step, pythonVersion, log } = await serveInstall(stream, request, onLog);
    signal.throwIfAborted();
    await engine.wait(id, signal);
    const { exitCode, outOfMemory } = await engine.inspect(id, signal);
    const isLine = request.layer.some((step) => !("packages" in step));
    const Failure = isLine ? BuildError : InstallError;
    if (outOfMemory)
      throw new Failure("The build ran out of memory: raise the agent's agent_max_memory.");
    if (exitCode !== 0) throw new Failure(explainFailure(request.steps, step, log, exitCode));
    if (!pythonVersion)
      throw new Failure("The build wrote into the installer's own stream, and was ended.");
    return pythonVersion;
  } finally {
    signal.removeEventListener("abort", giveUp);
    stream.destroy();
  }
}

/** The line of the log with which a step begins. */
function headOf(steps: readonly BuildStep[], number: number): string {
  const step = steps[number - 1];
  return `[${number}/${steps.length}] ${step ? titleOf(step) : ""}`;
}

/** Why a build failed, from the messages of the step that it failed in. */
function explainFailure(
  steps: readonly BuildStep[],
  number: number,
  log: string,
  exitCode: number,
): string {
  const step = steps[number - 1];
  if (!step) return explainPipFailure(log, exitCode);
  const said = log.slice(Math.max(0, log.lastIndexOf(headOf(steps, number))));
  const rest = said.replace(/^\[.*/, "");
  const words = "packages" in step ? explainPipFailure(rest, exitCode) : lastWords(rest);
  return `Step ${number} of ${steps.length} (${titleOf(step)}) ended with exit code ${exitCode}: ${words}`;
}

const lastWords = (log: string): string =>
  withHint(log.trim().split(/\s*\n/).slice(-6).join("\n").slice(-2000)) || "it said nothing";

async function send(stream: Duplex, request: LayerRequest): Promise<void> {
  const { layer, steps, env } = request;
  // A command could read the rest in the memory of its parent: settings of pip may have a password.
  const isCommand = runsCommand(layer);
  const files = request.files.filter(({ name }) => !isCommand || name === CERTIFICATES);
  const trusted = Object.entries(env).filter(([name]) => caVariables.includes(name));
  const orders = {
    job_type: request.jobType,
    steps: layer.map((step) => ({ ...step, head: headOf(steps, step.number) })),
    env: isCommand ? Object.fromEntries(trusted) : env,
    ...(isOwn(layer) && { runner: pipRunner }),
    files: files.map(({ name, sizeBytes }) => ({ name, size: sizeBytes })),
  };
  stream.write(`${JSON.stringify(orders)}\n`);
  for (const { path, sizeBytes } of files) {
    if (sizeBytes === 0) continue;
    for await (const chunk of createReadStream(path, { end: sizeBytes - 1 })) {
      if (!stream.write(chunk)) await once(stream, "drain");
    }
  }
}

/** Serves the steps until the container ends; returns what it has said and the end of its log. */
async function serveInstall(
  stream: Duplex,
  { layer, serve, onStep }: LayerRequest,
  onLog: (bytes: Uint8Array) => void,
): Promise<{ step: number; pythonVersion: string | null; log: string }> {
  const demux = engineDemux();
  const decode = frameDecoder();
  const tunnel = openTunnel((frame) => void stream.write(frame), serve);
  let step = 0;
  let pythonVersion: string | null = null;
  let tail = Buffer.alloc(0);
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const { stream: name, bytes } of demux(chunk)) {
        if (name === "stdout") {
          for (const frame of decode(bytes)) {
            if (frame.type !== "P") {
              tunnel.take(frame);
              continue;
            }
            const word = parseMessage(Word, frame.payload);
            // A step runs as root, and can write what it likes.
            if ("step" in word && !layer.some(({ number }) => number === word.step)) throw word;
            if ("step" in word) onStep((step = word.step));
            else pythonVersion = word.python_version;
          }
        } else {
          onLog(bytes);
          tail = Buffer.concat([tail, bytes]).subarray(-tailBytes);
        }
      }
    }
  } catch {
    // A broken stream or wrong frames end the build's stream; the exit code of the container
    // decides.
    stream.destroy();
  } finally {
    tunnel.close();
  }
  return { step, pythonVersion, log: tail.toString("utf8") };
}

/** A request to make an image from a base image by running steps. */
export interface ImageRequest {
  readonly baseImage: string;
  readonly steps: readonly BuildStep[];
  /** Whether to run also steps whose result the engine has. */
  readonly fresh: boolean;
  /** Environment of every step that installs packages. */
  readonly env: Readonly<Record<string, string>>;
  /** Files that are copied to /tmp/airlock-build. */
  readonly files: readonly {
    readonly name: string;
    readonly path: string;
    readonly sizeBytes: number;
    readonly changedMs: number;
  }[];
  /** Gets what the steps say to their proxy, one connection after the other. */
  readonly serve: (connection: Duplex) => void;
  /** Hears of each step, from 1, when it begins. */
  readonly onStep: (step: number) => void;
  readonly jobType: string;
  /** Whose job type it is, if a tenant has made it. */
  readonly tenant?: string | undefined;
  readonly repository: string;
  readonly tags: readonly string[];
  readonly owner: SandboxLabels;
  readonly limits: BuildLimits;
}

const ofPackages = ["CHOWN", "DAC_OVERRIDE", "FOWNER"];
/** To become the user who installs a tenant's packages. */
const ofOwn = [...ofPackages, "SETUID", "SETGID"];
const ofCommands = [...ofPackages, "SETUID", "SETGID", "FSETID", "KILL", "SYS_CHROOT", "SETFCAP"];

/**
 * The body of the create call. It sets no runtime, so that the engine's default is used: gVisor
 * keeps written files to itself, and there would be nothing to commit.
 */
export function buildProfile(request: LayerRequest, { boundsDisk }: { boundsDisk: boolean }) {
  const { memoryBytes, cpus, pids, diskBytes } = request.limits;
  return {
    ...commonProfile(request.image, request.owner),
    Entrypoint: [],
    Cmd: ["python3", "-I", "-S", "-B", "-c", installerProgram],
    NetworkDisabled: true,
    HostConfig: {
      NetworkMode: "none",
      CapDrop: ["ALL"],
      CapAdd: runsCommand(request.layer) ? ofCommands : isOwn(request.layer) ? ofOwn : ofPackages,
      SecurityOpt: ["no-new-privileges"],
      Memory: memoryBytes,
      MemorySwap: memoryBytes,
      NanoCpus: Math.round(cpus * 1e9),
      PidsLimit: pids,
      ...(boundsDisk && { StorageOpt: { size: String(diskBytes) } }),
      // An anonymous volume is removed with the container and never becomes part of the image.
      Mounts: [{ Type: "volume" as const, Target: "/tmp" }],
      LogConfig: { Type: "none", Config: {} },
    },
  };
}

/**
 * The Dockerfile instructions of the commit. They blank the labels of the base image and the
 * container, which must not be inherited.
 */
function imageChanges(request: LayerRequest): string[] {
  const { jobType, tenant, repository, tags, steps, image, layer, isLast } = request;
  const hash = createHash("sha256").update(JSON.stringify(steps)).digest("hex");
  const imageLabels = {
    "io.airlock.job-type": isLast ? jobType : "",
    // Still there after a rebuild has taken the tags away.
    [REPOSITORY]: isLast ? repository : "",
    "io.airlock.version": isLast ? (tags[0] ?? "") : "",
    "io.airlock.steps": isLast ? hash : "",
    [STEP]: layer.length > 0 ? keyOf(image, layer, request) : "",
    [TENANT]: isLast || isOwn(layer) ? (tenant ?? "") : "",
    [FURNISHED]: "",
    [STANDS_IN_FOR]: "",
    [labels.agentId]: "",
    [labels.agentName]: "",
    [labels.hostScope]: "",
    [labels.leaseId]: "",
  };
  return [
    ...layer.flatMap((step) => (step.kind === "set" ? step.changes : [])),
    ...Object.entries(imageLabels).map(([name, value]) => `LABEL ${name}="${value}"`),
    'CMD ["python3"]',
  ];
}

export type BuildLog = ReturnType<typeof createBuildLog>;

const EVERY_MS = 1000;
const CHUNK_MAX_BYTES = 256 * 1024;
/** How much of the end is kept, because errors are reported there. */
const END_BYTES = 64 * 1024;
const HEAD_BYTES = limits.buildLogMaxBytes - END_BYTES - 100;

/** Sends the log of a build to the API, one piece per second; the excess over the limit is left out. */
export function createBuildLog(clock: Clock, send: (chunk: BuildLogChunk) => Promise<void>) {
  const closing = new AbortController();
  let waiting: Uint8Array[] = [];
  let room = HEAD_BYTES;
  let offset = 0;
  let end: Uint8Array[] = [];
  let endBytes = 0;
  let leftOut = 0;
  let begun: number | undefined;

  /** Notes the step that begins, which the next piece brings. */
  function begin(step: number): void {
    begun = step;
  }

  function add(bytes: Uint8Array): void {
    const head = bytes.subarray(0, room);
    const rest = bytes.subarray(head.length);
    waiting.push(head);
    room -= head.length;
    end.push(rest);
    endBytes += rest.length;
    while (endBytes - (end[0]?.length ?? 0) >= END_BYTES) {
      const dropped = end.shift()?.length ?? 0;
      endBytes -= dropped;
      leftOut += dropped;
    }
  }

  async function flush(): Promise<void> {
    const bytes = Buffer.concat(waiting);
    waiting = [];
    for (let at = 0; at < bytes.length || begun !== undefined; at += CHUNK_MAX_BYTES) {
      const chunk = bytes.subarray(at, at + CHUNK_MAX_BYTES);
      const step = begun;
      begun = undefined;
      const data_base64 = chunk.toString("base64");
      await send({ offset, data_base64, ...(step !== undefined && { step }) });
      offset += chunk.length;
    }
  }

  async function pump(): Promise<void> {
    while (!closing.signal.aborted) {
      await clock.sleep(EVERY_MS, closing.signal).catch(() => {});
      await flush();
    }
  }
  const pumping = pump();
  pumping.catch(() => {});

  /** Sends the rest. */
  async function close(): Promise<void> {
    closing.abort();
    await pumping;
    const last = Buffer.concat(end);
    const kept = last.subarray(-END_BYTES);
    leftOut += last.length - kept.length;
    if (leftOut > 0) waiting.push(Buffer.from(`\n… ${leftOut} bytes left out …\n`));
    waiting.push(kept);
    await flush();
  }

  return { add, begin, close };
}
