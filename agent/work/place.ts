import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import type { Logger } from "@logtape/logtape";
import { decodeUtf8, parseBytes } from "../../shared/bytes.ts";
import { languages } from "../../shared/languages.ts";
import { describeError } from "../../shared/log-line.ts";
import { putLast } from "../../shared/lru.ts";
import { canonicalRequirement, parseRequirement } from "../../shared/requirement.ts";
import type { LeasedFile } from "../../shared/wire/files.ts";
import type { LeasedJobType } from "../../shared/wire/job-types.ts";
import type {
  AgentIdentity,
  CallFile as LeasedCallFile,
  ImageLanguages,
  LeasedJob,
  LeasedSession,
  ReadyKind,
} from "../../shared/wire/leases.ts";
import { topImports } from "../backends/zygotes.ts";
import type { Client } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import type { EngineMonitor } from "../engine/health.ts";
import { type FileLoan, type FileStore, ownerOf } from "../host/files.ts";
import type { GpuLease, Gpus } from "../host/gpus.ts";
import { type Admission, JobRefusal, type RuntimeChoice } from "../host/policy.ts";
import type { Images, Inventory } from "../images/images.ts";
import type { PackageCache } from "../packages/cache.ts";
import {
  certificatesName,
  createPackageProxy,
  type PipConfig,
  readRuntimeSource,
} from "../packages/proxy.ts";
import {
  type CallFile,
  InstallError,
  type InputFile,
  type SandboxJob,
  type WantedPackages,
} from "../sandbox/job.ts";
import { isArtifactName } from "../sandbox/output.ts";
import {
  EngineError,
  type Sandbox,
  type SandboxRequest,
  type SandboxSource,
} from "../sandbox/sandbox.ts";
import { abortable, type ChangeSignal, type Clock, deadline } from "../waiting.ts";
import type { Lease, Leases } from "./leases.ts";

export type PlaceDeps = {
  readonly agent: AgentIdentity;
  readonly admission: Admission;
  readonly images: Images;
  readonly sandboxes: SandboxSource;
  readonly languages: Pick<LanguageFinder, "lookInto">;
  /** Null where the host has none. */
  readonly gpus: Pick<Gpus, "total"> | null;
  readonly engine: EngineMonitor;
  readonly chooseRuntime: RuntimeChoice;
  readonly seccomp: boolean;
  readonly requirements: {
    /** Whether the operator of this host lets jobs install packages. */
    readonly allowed: boolean;
    /** Null if nothing is cached. */
    readonly cache: PackageCache | null;
  };
  readonly pip: PipConfig;
  readonly files: FileStore;
  readonly client: Pick<Client, "inputFile">;
  readonly clock: Clock;
};

/**
 * A sandbox, what it is to run, the reference that pins its image, and the runtime if it is known. A session has no
 * job: each of its calls brings one.
 */
export type Acquired<Job extends SandboxJob | null = SandboxJob> = {
  readonly sandbox: Sandbox;
  readonly job: Job;
  readonly packages: WantedPackages | null;
  readonly jobRef: string;
  readonly runtime: string | null;
};

/** Where a job or a session runs. Disposing it gives its sandbox back, once. */
interface Place<Job extends SandboxJob | null = SandboxJob> extends AsyncDisposable {
  readonly acquired: Acquired<Job>;
}

/** What a job has before its place: its files, its GPUs, and who hears how many ms its packages took to install. */
interface Needs {
  readonly files: Pick<JobFiles, "fetch">;
  readonly gpus?: GpuLease | undefined;
  readonly took: (ms: number) => void;
}

/**
 * Finds the place of a job.
 *
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
export type FindPlace = (deps: PlaceDeps, lease: Lease, needs: Needs) => Promise<Place>;

/** Opens a sandbox for a job alone. */
export const openJobPlace: FindPlace = (deps, lease, needs) =>
  openPlace(deps, lease, sandboxJob(lease.job), needs);

/** Opens a sandbox for the lease's job, or for its session, with the packages. As `FindPlace`. */
export async function openPlace<Job extends SandboxJob | null>(
  deps: PlaceDeps,
  lease: StartLease,
  job: Job,
  needs: Needs,
): Promise<Place<Job>> {
  admitRequirements(deps, lease.job);
  const acquired = await startUp(deps, lease, job, needs);
  const place = borrow(deps.sandboxes, lease, acquired);
  try {
    await installRequirements(deps, acquired);
    return place;
  } catch (error) {
    await place[Symbol.asyncDispose]();
    throw error;
  }
}

function borrow<Job extends SandboxJob | null>(
  sandboxes: Pick<SandboxSource, "giveBack" | "discard">,
  { drop }: StartLease,
  acquired: Acquired<Job>,
): Place<Job> {
  const { sandbox } = acquired;
  // If the lease is dropped, the sandbox is removed at once: the job may already run elsewhere.
  const discard = (): void => sandboxes.discard(sandbox);
  drop.signal.addEventListener("abort", discard);
  let isOurs = true;
  return {
    acquired,
    [Symbol.asyncDispose]: async () => {
      if (!isOurs) return;
      isOurs = false;
      drop.signal.removeEventListener("abort", discard);
      await sandboxes.giveBack(sandbox);
    },
  };
}

/** The lease of a job or of a session. */
type StartLease = Lease<LeasedJob | LeasedSession>;

/**
 * Gets a sandbox for the lease's job within the job's startup_timeout.
 *
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
async function startUp<Job extends SandboxJob | null>(
  deps: PlaceDeps,
  lease: StartLease,
  job: Job,
  needs: Needs,
): Promise<Acquired<Job>> {
  const { engine, clock } = deps;
  const { job: leased, drop, cancel } = lease;
  if (engine.slotsToOffer(1, 0) === 0) {
    throw new EngineError("unavailable", "circuit breaker open", { transient: true });
  }
  using limit = deadline(clock, leased.startup_timeout_s * 1000);
  const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
  const acquire = () => acquireSandbox(deps, lease, job, needs, signal);
  try {
    const acquired = await acquire().catch((error: unknown) => {
      if (!(error instanceof EngineError) || error.code !== "image_not_found") throw error;
      deps.images.forget(leased.image);
      return acquire();
    });
    engine.recordSuccess();
    return acquired;
  } catch (error) {
    if (error instanceof JobRefusal) throw error;
    if (limit.signal.aborted) {
      engine.checkSoon();
      const message = `The container did not start within ${leased.startup_timeout_s} s.`;
      throw new JobRefusal("startup_timeout", message, { cause: error });
    }
    if (!signal.aborted && isOfEngine(error)) engine.recordFailure();
    throw error;
  }
}

function isOfEngine(error: unknown): boolean {
  return error instanceof EngineError && error.transient && error.code !== "not_forked";
}

async function acquireSandbox<Job extends SandboxJob | null>(
  deps: PlaceDeps,
  lease: StartLease,
  job: Job,
  needs: Needs,
  signal: AbortSignal,
): Promise<Acquired<Job>> {
  const leased = lease.job;
  const { job_type, tenant } = leased;
  const { runtimes } = deps.engine.health();
  const runtime = deps.chooseRuntime(runtimes);
  await deps.admission.admitJob(leased, runtime, signal);
  refuseTooManyGpus(deps, job_type);
  const image = await deps.images.resolve(leased.image, signal);
  const packages = await wantPackages(deps, lease, image, needs.took);
  const inputFiles = await needs.files.fetch(signal);
  // The packages of a request come before those of its image.
  const isLearned = job_type.preload === "auto" && packages === null && !job?.program;
  const imports = isLearned && typeof job?.code === "string" ? topImports(job.code) : [];
  const gpus = needs.gpus ? await abortable(needs.gpus.ids, signal) : [];
  const ofJob = { tenant, packages, files: inputFiles, imports };
  const request = sandboxRequest(deps, job_type, image, runtime, gpus, ofJob);
  // An agent that runs only Python looks into no image.
  if (job?.program) deps.languages.lookInto(leased.image, request, job_type.base_image);
  const sandbox = await (job === null
    ? deps.sandboxes.acquire({ ...request, isSession: true }, signal)
    : deps.sandboxes.acquire(request, signal, job));
  if (inputFiles.length > 0) await give(deps, sandbox, request, signal);
  const jobRef = `${job_type.name}@${image}`;
  return { sandbox, job, packages, jobRef, runtime: runtime ?? runtimes[0] ?? null };
}

/** What a sandbox runs for a leased job. */
export function sandboxJob(job: LeasedJob): SandboxJob {
  return {
    code: job.code,
    results: job.results,
    tools: job.tools && {
      functions: job.tools.functions,
      timeoutMs: job.tools.timeout_s * 1000,
    },
    program: job.program && {
      ...job.program,
      compileTimeoutMs: job.program.compile_timeout_s * 1000,
    },
    inputJson: job.input_json,
    stdin: job.stdin,
    args: job.args,
    timeoutMs: job.timeout_s * 1000,
    maxSockets: job.job_type.network === "none" ? job.job_type.max_sockets : undefined,
    caps: { streamBytes: job.caps.stream_bytes, artifactBytes: job.caps.artifact_bytes },
  };
}

const tooLarge = new JobRefusal(
  "config_error",
  "The files of the job have more bytes than a quarter of its memory limit, and the agent cannot mount them for it: raise the memory_limit of its job type, or run the job where jobs are forked.",
);

/** Sends the files that are not mounted. They use the job's memory. */
async function give(
  { sandboxes }: PlaceDeps,
  sandbox: Sandbox,
  { files, spec: { memoryBytes } }: SandboxRequest,
  signal: AbortSignal,
): Promise<void> {
  const sent = files.filter(({ name }) => !sandbox.mounted?.has(name));
  try {
    if (sizeOf(sent) > memoryBytes / 4) throw tooLarge;
    await sandbox.giveFiles(sent, signal);
  } catch (error) {
    sandboxes.discard(sandbox);
    throw error;
  }
}

function refuseTooManyGpus({ gpus: ofHost }: PlaceDeps, { name, gpus }: LeasedJobType): void {
  const total = ofHost?.total ?? 0;
  if (gpus <= total) return;
  const message = `Job type ${name} asks for ${gpus} GPUs, and the agent has ${total} (agent_gpus).`;
  throw new JobRefusal("config_error", message);
}

const unknownJob = { tenant: "", packages: null, imports: [], files: [] };

/** The sandbox that a job of this type needs. */
function sandboxRequest(
  { agent, seccomp, requirements }: Pick<PlaceDeps, "agent" | "seccomp" | "requirements">,
  job_type: LeasedJobType,
  image: string,
  runtime: string | null,
  gpus: readonly string[] = [],
  ofJob: Omit<SandboxRequest, "jobType" | "spec"> = unknownJob,
): SandboxRequest {
  const spec = {
    image,
    labels: { agentId: agent.id, agentName: agent.name, leaseId: null },
    memoryBytes: parseBytes(job_type.memory_limit),
    cpus: job_type.cpu_limit,
    pids: job_type.pids,
    network: job_type.network,
    loopback: job_type.network === "none" ? job_type.loopback : ("full" as const),
    runtime,
    seccomp,
    packages: requirements.allowed ? ("memory" as const) : ("none" as const),
    env: job_type.env,
    preload: job_type.preload === "auto" ? [] : job_type.preload,
    gpus,
  };
  return { jobType: job_type.name, spec, ...ofJob };
}

const MAX_PROBLEMS = 5;

/**
 * Checks the job's requirements against this host's own settings; the API has checked them before.
 *
 * @throws JobRefusal if the job's requirements may not be installed here.
 */
function admitRequirements({ requirements }: PlaceDeps, job: LeasedJob | LeasedSession): void {
  if (job.requirements.length === 0) return;
  if (!requirements.allowed) {
    const message =
      "The agent does not install requirements: allow_runtime_requirements is false in its own configuration.";
    throw new JobRefusal("config_error", message);
  }
  const at = job.requirements.findIndex((text) => parseRequirement(text) === null);
  if (at < 0) return;
  const shown = JSON.stringify(job.requirements[at]);
  throw new JobRefusal("dependency_error", `requirements.${at} is not a package's name: ${shown}`);
}

/**
 * What the job's requirements ask for on an image; null if there are none.
 *
 * @param took is told the milliseconds that an installation took.
 * @throws JobRefusal if a file that names the source of packages cannot be read.
 */
async function wantPackages(
  deps: PlaceDeps,
  lease: StartLease,
  image: string,
  took: (installMs: number) => void,
): Promise<WantedPackages | null> {
  const { requirements, job_type, tenant } = lease.job;
  if (requirements.length === 0) return null;
  const { pipEnv, certificates, reach, fingerprint } = await readRuntimeSource(deps.pip);
  const problems = new Set<string>();
  const set = [...new Set(requirements.map(canonicalRequirement))].sort();
  return {
    requirements,
    tenant,
    key: hashOf([tenant, image, job_type.env, fingerprint, set]),
    from: {
      // Without the cache, packages are used once: to compile all of them would cost more than it saves.
      pipEnv: { ...pipEnv, ...(deps.requirements.cache === null && { PIP_NO_COMPILE: "1" }) },
      files: certificates === null ? {} : { [certificatesName]: certificates },
      serve: createPackageProxy(reach, (words) => problems.add(words)),
      keep: null,
      maxBytes: null,
    },
    wait: (install) => waitFor(deps, lease, install, problems),
    took,
  };
}

/** Waits for an installation for the time that is left of the job's startup_timeout. */
async function waitFor<T>(
  { clock }: PlaceDeps,
  { job, drop, cancel, takenMs }: StartLease,
  install: (signal: AbortSignal) => Promise<T>,
  problems: ReadonlySet<string>,
): Promise<T> {
  const leftMs = takenMs + job.startup_timeout_s * 1000 - clock.nowMs();
  using limit = deadline(clock, Math.max(0, leftMs));
  const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
  try {
    return await install(signal);
  } catch (error) {
    if (error instanceof InstallError) {
      throw new JobRefusal("dependency_error", withProblems(error, problems), { cause: error });
    }
    if (!limit.signal.aborted || drop.signal.aborted || cancel.signal.aborted) throw error;
    const message = `The requirements were not installed within ${job.startup_timeout_s} s (startup_timeout).`;
    throw new JobRefusal("startup_timeout", message, { cause: error });
  }
}

function withProblems({ message }: InstallError, problems: ReadonlySet<string>): string {
  if (problems.size === 0) return message;
  const reached = [...problems].slice(0, MAX_PROBLEMS).join("; ").slice(0, 1000);
  return `${message}\nWhat could not be reached: ${reached}.`;
}

/**
 * Installs the job's packages into its container, unless they are there already.
 *
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
async function installRequirements(
  { requirements: { cache }, clock }: PlaceDeps,
  acquired: Acquired<SandboxJob | null>,
): Promise<void> {
  const { sandbox, packages } = acquired;
  if (packages === null || sandbox.hasPackages) return;
  const { requirements, from, took } = packages;
  await packages.wait(async (signal) => {
    // The same key may mean another Python or platform here: the engine chooses the runtime.
    const content = hashOf([packages.key, sandbox.pythonVersion, acquired.runtime]);
    const key = `${ownerOf(packages.tenant)}${content}`;
    await using kept = (await cache?.find(key)) ?? null;
    if (kept) return await sandbox.install({ requirements, from: { kept: kept.pieces } }, signal);

    await using keeper = (await cache?.begin(key)) ?? null;
    const keep = keeper && (async () => (await keeper.restart(), keeper.write));
    const beganMs = clock.nowMs();
    try {
      await sandbox.install({ requirements, from: { ...from, keep } }, signal);
    } finally {
      took(clock.nowMs() - beganMs);
    }
    await keeper?.commit();
  });
}

function hashOf(parts: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

/** The files of one job, from the API to its sandbox. Disposing gives them back. */
interface JobFiles extends AsyncDisposable {
  /** Lends them to the job, fetched where they are missing. */
  readonly fetch: (signal: AbortSignal) => Promise<readonly CallFile[]>;
}

export function filesOf(
  { files: store, client }: Pick<PlaceDeps, "files" | "client">,
  job: LeasedJob,
): JobFiles {
  const files = job.files ?? [];
  const open = (file: LeasedFile, until: AbortSignal) =>
    client.inputFile(job.lease_id, file.sha256, until).catch((error: unknown) => {
      throw explained(error);
    });
  let loan: FileLoan | null = null;
  return {
    async fetch(signal) {
      if (files.length === 0) return [];
      refuseNames(files);
      loan ??= await store.borrow(job.tenant, files, open, signal);
      const { pathOf } = loan;
      return files.map(({ name, size_bytes, sha256, to = "input" as const }) => ({
        name,
        to,
        sizeBytes: size_bytes,
        sha256,
        path: pathOf(sha256),
      }));
    },
    [Symbol.asyncDispose]() {
      loan?.giveBack();
      return Promise.resolve();
    },
  };
}

function sizeOf(files: readonly InputFile[]): number {
  return files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

/** Checks names again, although the API has checked them: here a name becomes a path. */
function refuseNames(files: readonly LeasedCallFile[]): void {
  const bad = files.find((file) => !isArtifactName(file.name) || isReserved(file));
  if (bad === undefined) return;
  const shown = JSON.stringify(bad.name).slice(0, 200);
  throw new JobRefusal(
    "config_error",
    `A file of the job has a name that is not allowed: ${shown}`,
  );
}

/** Names in /input that are the agent's own. */
const isReserved = ({ name, to }: LeasedCallFile): boolean =>
  to !== "work" && (name.startsWith("_") || name === "data.json");

/** If the API no longer has a file, trying the job again is of no use. */
function explained(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.endsAgent) return error;
  if (error.kind === "rejected")
    return new JobRefusal(
      "internal_error",
      `A file of the job could not be fetched: ${error.message}`,
    );
  return new Error("a file of the job could not be fetched", { cause: error });
}

type LanguageFinder = ReturnType<typeof createLanguageFinder>;

type LanguageFinderDeps = {
  readonly sandboxes: Pick<SandboxSource, "acquire" | "giveBack">;
  readonly leases: Pick<Leases, "free" | "size">;
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

/** A compiler that takes longer to say its version is of no use. */
const eachVersionS = 10;
const askingMs = 60_000;
/** Each poll tells of them all, and tenants may have new images built all day. */
const mostImages = 200;

/** What to ask for each language: its programs, the arguments for the first one's version, the least version. */
const askedOf = Object.fromEntries(
  Object.entries(languages).map(
    ([name, { compile, run, programs, tellVersion = ["--version"], since = "0" }]) => {
      const first = [compile?.[0], run[0]].filter((one) => one && !one.startsWith("/tmp/"));
      return [name, [programs ?? first, tellVersion, since]];
    },
  ),
);

/** Prints the version of each language that is there, as JSON. */
const askingCode = String.raw`
import json, os, re, shutil, subprocess
asked = json.loads(r"""${JSON.stringify(askedOf)}""")
os.environ["HOME"] = "/tmp"
found, said = {}, {}
def numbers(text):
    return [int(each) for each in text.split(".")]
for name, (programs, arguments, since) in asked.items():
    if None in map(shutil.which, programs):
        continue
    command = (programs[0], *arguments)
    try:
        if command not in said:
            said[command] = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=${eachVersionS}, check=True).stdout.decode("utf-8", "replace")
        version = re.search(r"\d+(\.\d+)+", said[command])[0]
        if numbers(version) >= numbers(since):
            found[name] = version[:32]
    except (OSError, subprocess.SubprocessError, TypeError):
        pass
print(json.dumps(found))
`;

/** Knows which of the usual languages images have. */
export function createLanguageFinder(deps: LanguageFinderDeps) {
  const { sandboxes, leases, changes, log } = deps;
  const end = new AbortController();
  /** Images that were looked into, or will be, and their references. The first was asked for longest ago. */
  const begun = new Map<string, string>();
  let known: ImageLanguages = {};
  let last: Promise<void> = Promise.resolve();

  async function look(request: SandboxRequest): Promise<Record<string, string>> {
    await abortable(
      changes.waitUntil(() => end.signal.aborted || leases.free() === leases.size),
      end.signal,
    );
    end.signal.throwIfAborted();
    const sandbox = await sandboxes.acquire(request, end.signal);
    try {
      const caps = { streamBytes: 64 * 1024, artifactBytes: 0 };
      const job = { code: askingCode, inputJson: "{}", timeoutMs: askingMs, caps };
      const report = await sandbox.run(job, { signal: end.signal, spoolDir: tmpdir() });
      return JSON.parse(decodeUtf8(report.stdout)) as Record<string, string>;
    } finally {
      await sandboxes.giveBack(sandbox);
    }
  }

  async function note(reference: string, request: SandboxRequest): Promise<void> {
    try {
      const found = await look(request);
      if (![...begun.values()].includes(reference)) return;
      known = { ...known, [reference]: found };
      changes.notify();
    } catch (error) {
      if (end.signal.aborted) return;
      log.warn("the languages of image {image} are not known: {reason}", {
        image: reference,
        reason: describeError(error),
      });
    }
  }

  return {
    /** By the reference of the image. A new object after each change. */
    known: () => known,
    /** Looks into an image once, in a sandbox like its jobs', when the agent has nothing else to do. */
    lookInto(reference: string, request: SandboxRequest, baseImage: string): void {
      const { spec, jobType, tenant } = request;
      // Variables and limits that a tenant has set must not decide what others find in the same image.
      if (jobType.startsWith(`${tenant}.`) && reference === baseImage) return;
      const place = `${reference} ${spec.image}`;
      if (spec.gpus.length > 0) return;
      const isKnown = begun.has(place);
      const old = putLast(begun, place, reference, mostImages);
      if (old.length > 0)
        known = Object.fromEntries(Object.entries(known).filter(([one]) => !old.includes(one)));
      if (isKnown) return;
      last = last.then(() => note(reference, { ...request, ...unknownJob }));
    },
    async close(): Promise<void> {
      end.abort();
      await last;
    },
  };
}

/** Has sandboxes kept ready for jobs of these types, if their image is already on the engine. */
export async function keepReady(
  deps: PlaceDeps & { readonly inventory: Inventory; readonly log: Logger },
  kinds: readonly ReadyKind[],
  signal: AbortSignal,
): Promise<void> {
  const { images, sandboxes, inventory, log } = deps;
  for (const { job_type, image } of kinds) {
    // Containers with a GPU are not started ahead.
    if (job_type.gpus > 0 || !inventory.present().includes(image)) continue;
    try {
      const runtime = deps.chooseRuntime(deps.engine.health().runtimes);
      await deps.admission.admitJob({ job_type, image }, runtime, signal);
      sandboxes.keepReadyFor(
        sandboxRequest(deps, job_type, await images.resolve(image, signal), runtime),
      );
    } catch (error) {
      const jobType = job_type.name;
      log.warn("{jobType} is not kept ready: {reason}", { jobType, reason: describeError(error) });
    }
  }
}
