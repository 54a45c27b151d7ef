import { parseBytes } from "../../shared/bytes.ts";
import type { AgentIdentity, LeasedJob } from "../../shared/wire/agent/lease.ts";
import type { LeasedJobType } from "../../shared/wire/agent/leased-job-type.ts";
import type { LeasedSession } from "../../shared/wire/agent/session.ts";
import { abortable } from "../waiting/abortable.ts";
import type { Admission } from "../policy/admission.ts";
import { topImports } from "../fork/top-imports.ts";
import type { EngineMonitor } from "../health/engine-monitor.ts";
import type { GpuLease, Gpus } from "../backend/gpus.ts";
import type { Images } from "../image/images.ts";
import { sizeOf } from "../files/job-files.ts";
import type { LanguageFinder } from "./languages.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";
import type { SandboxRequest } from "../sandbox/sandbox-request.ts";
import type { RuntimeChoice } from "../policy/runtime-choice.ts";
import type { WantedPackages } from "../sandbox/package-request.ts";
import type { JobFiles } from "../files/job-files.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { SandboxJob } from "../sandbox/job.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

export type AcquireDeps = {
  readonly agent: AgentIdentity;
  readonly admission: Admission;
  readonly images: Images;
  readonly sandboxes: SandboxSource;
  readonly languages: Pick<LanguageFinder, "lookInto">;
  readonly gpus: Pick<Gpus, "total">;
  readonly engine: Pick<EngineMonitor, "health">;
  readonly chooseRuntime: RuntimeChoice;
  readonly seccomp: boolean;
  /** Whether packages may be installed for a job. */
  readonly requirements: { readonly allowed: boolean };
};

/** A sandbox for one job, what it is to run, the reference that pins its image, and the runtime if it is known. */
export type Acquired = {
  readonly sandbox: Sandbox;
  readonly job: SandboxJob;
  readonly packages: WantedPackages | null;
  readonly jobRef: string;
  readonly runtime: string | null;
};

/** A session that starts, as if it were a job: its sandbox is not used for one job only. */
export type SessionStart = LeasedJob & Pick<LeasedSession, "session_id">;

/** What a job asks for on an image; null if it asks for no packages. */
export type Want = (image: string) => Promise<WantedPackages | null>;

/** @throws JobRefusal; EngineError; the signal's reason. */
export async function acquireSandbox(
  deps: AcquireDeps,
  job: LeasedJob,
  want: Want,
  files: Pick<JobFiles, "fetch">,
  gpus: GpuLease,
  signal: AbortSignal,
): Promise<Acquired> {
  const { images } = deps;
  try {
    return await acquireOnce(deps, job, want, files, gpus, signal);
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== "image_not_found") throw error;
    images.forget(job.image);
    return acquireOnce(deps, job, want, files, gpus, signal);
  }
}

async function acquireOnce(
  deps: AcquireDeps,
  job: LeasedJob | SessionStart,
  want: Want,
  files: Pick<JobFiles, "fetch">,
  gpus: GpuLease,
  signal: AbortSignal,
): Promise<Acquired> {
  const { runtimes } = deps.engine.health();
  const runtime = deps.chooseRuntime(runtimes);
  await deps.admission.admitJob(job, runtime, signal);
  refuseTooManyGpus(deps, job.job_type);
  const image = await deps.images.resolve(job.image, signal);
  const packages = await want(image);
  const inputFiles = await files.fetch(signal);
  // The packages of a request come before those of its image.
  const isLearned = job.job_type.preload === "auto" && packages === null && !job.program;
  const request = sandboxRequest(
    deps,
    job.job_type,
    image,
    runtime,
    await abortable(gpus.ids, signal),
    {
      tenant: job.tenant,
      packages,
      files: inputFiles,
      imports: isLearned ? topImports(job.code) : [],
    },
  );
  // Who runs Python alone pays nothing for it.
  if (job.program) deps.languages.lookInto(job.image, request);
  const own = sandboxJob(job);
  const isSession = "session_id" in job;
  const sandbox = await (isSession
    ? deps.sandboxes.acquire({ ...request, isSession }, signal)
    : deps.sandboxes.acquire(request, signal, own));
  if (inputFiles.length > 0) await give(deps, sandbox, request, signal);
  const jobRef = `${job.job_type.name}@${image}`;
  return { sandbox, job: own, packages, jobRef, runtime: runtime ?? runtimes[0] ?? null };
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
  { sandboxes }: AcquireDeps,
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

function refuseTooManyGpus({ gpus: { total } }: AcquireDeps, { name, gpus }: LeasedJobType): void {
  if (gpus <= total) return;
  const message = `Job type ${name} asks for ${gpus} GPUs, and the agent has ${total} (agent_gpus).`;
  throw new JobRefusal("config_error", message);
}

const unknownJob = { tenant: "", packages: null, imports: [], files: [] };

/** The sandbox that a job of this type needs. */
export function sandboxRequest(
  { agent, seccomp, requirements }: Pick<AcquireDeps, "agent" | "seccomp" | "requirements">,
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
