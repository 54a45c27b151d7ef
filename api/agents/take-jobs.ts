import { decodeUtf8 } from "../../shared/bytes.ts";
import type { LeasedFile } from "../../shared/wire/file.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { LeasedJob, PollRequest } from "../../shared/wire/agent/lease.ts";
import type { Deps } from "../deps.ts";
import { readEnvironments } from "../jobs/environments.ts";
import { isFollowed, tellEnd, tellFollowers } from "../jobs/followed.ts";
import { digestOf, imageOf, pinnedRef, type Environment } from "../domain/environment.ts";
import { type ProgramChoice, resolveProgram } from "../domain/program.ts";
import { leasedTools } from "../domain/tools.ts";
import { isFor, resolveJobType, toLeasedJobType } from "../domain/job-types.ts";
import {
  accepts,
  isEquipped,
  mayRun,
  type Placed,
  servingAgents,
} from "../domain/agents/placement.ts";
import { advance } from "../store/jobs/advance.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { listAgents, findAgent } from "../store/agents/agents.ts";
import { claimNext, type Offer } from "../store/jobs/claim.ts";
import { filesOf, type InputFileInfo } from "../store/jobs/input-files.ts";
import { submittedPayloads, undeliveredLeases, type LeaseTerms } from "../store/jobs/lease.ts";

/** Leases jobs for an agent's free slots, only of job types that the agent may run. */
export async function takeJobs(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
): Promise<LeasedJob[]> {
  const { db } = deps;
  const { free_slots, leases: held } = request;
  const known = environments.map(({ jobType }) => jobType.name);
  const undelivered = await undeliveredLeases(db, lease, held, free_slots, known);
  const room = {
    slots: free_slots - undelivered.length,
    gpus: request.gpus.free - gpusOf(deps, undelivered),
    inputs: request.agent.accepts.inputs,
  };
  const claimed =
    room.slots > 0
      ? await claimNext(db, lease, room, await offers(deps, placedOf(request), environments))
      : [];
  return describe(deps, [...undelivered, ...claimed]);
}

/**
 * Leases a job for the slot that an agent has just freed, by the status that it last sent. The job never
 * needs a GPU: the GPU of the previous job is not free until its container is removed.
 */
export async function takeNext(deps: Deps, agentId: string): Promise<LeasedJob[]> {
  const { config, db, now } = deps;
  const agent = await findAgent(db, agentId);
  if (!agent || agent.leftAt !== null || agent.drainingAt !== null) return [];
  const environments = await readEnvironments(deps);
  const lease = { agentId, now: now(), expiresAt: now() + config.lease_ttl_s * 1000 };
  const offered = await offers(deps, agent, environments);
  const room = { slots: 1, gpus: 0, inputs: agent.accepts.inputs };
  return describe(deps, await claimNext(db, lease, room, offered));
}

function placedOf({ agent: { labels, accepts }, gpus, images }: PollRequest): Placed {
  return { labels, accepts, gpus, images };
}

function gpusOf({ config }: Deps, leased: ExecutionRow[]): number {
  return leased.reduce((sum, { jobType }) => sum + (resolveJobType(config, jobType)?.gpus ?? 0), 0);
}

async function offers(
  { config, db, now }: Deps,
  agent: Placed,
  environments: Environment[],
): Promise<Offer[]> {
  const mayRunAll = environments.every(
    (environment) =>
      agent.images.includes(imageOf(environment)) &&
      accepts(agent, environment) &&
      isEquipped(agent, environment),
  );
  const serving = mayRunAll ? [] : servingAgents(await listAgents(db), config, now());
  return environments
    .filter((environment) => mayRun(agent, environment, serving))
    .map(({ jobType: { name, gpus }, built }) => ({
      jobType: name,
      gpus,
      jobVersion: built?.tag ?? "latest",
      jobRef: built ? pinnedRef(name, built.digest) : null,
    }));
}

function toLeasedFile({ name, sizeBytes, sha256 }: InputFileInfo): LeasedFile {
  return { name, size_bytes: sizeBytes, sha256 };
}

async function describe(deps: Deps, executions: ExecutionRow[]): Promise<LeasedJob[]> {
  const ids = executions.map((execution) => execution.id);
  const [payloads, files] = await Promise.all([
    submittedPayloads(deps.db, ids),
    filesOf(deps.db, executions),
  ]);
  for (const execution of executions) tellFollowers(deps, execution);
  const refused: [ExecutionRow, string][] = [];
  const jobs = executions.flatMap((execution) => {
    const payload = payloads.get(execution.id);
    const jobType = resolveJobType(deps.config, execution.jobType);
    if (!payload || !jobType || execution.leaseId === null) return [];
    const program = payload.program && resolveProgram(payload.program, jobType);
    const refusal = whyNotAnyMore(execution, jobType, payload.program, program);
    if (refusal !== undefined) {
      refused.push([execution, refusal]);
      return [];
    }
    const own = files.filter(({ executionId }) => executionId === execution.id);
    return [
      {
        lease_id: execution.leaseId,
        execution_id: execution.id,
        attempt: execution.attempt,
        correlation_id: execution.correlationId,
        tenant: execution.tenant,
        job_type: toLeasedJobType(jobType),
        image: execution.jobRef === null ? jobType.base_image : digestOf(execution.jobRef),
        code: decodeUtf8(payload.code),
        input_json: decodeUtf8(payload.input),
        ...(payload.stdin && { stdin: decodeUtf8(payload.stdin) }),
        ...(payload.args && { args: payload.args }),
        ...(program && { program }),
        ...(execution.results !== null && { results: true }),
        ...(payload.tools && { tools: leasedTools(payload.tools, deps.config.max_timeout) }),
        ...(own.length > 0 && { files: own.map(toLeasedFile) }),
        requirements: deps.config.allow_runtime_requirements ? execution.requirements : [],
        timeout_s: execution.timeoutS,
        startup_timeout_s: execution.startupTimeoutS,
        traceparent: execution.traceparent,
        ...(isFollowed(execution, deps.now()) && { watch: true }),
        caps: {
          stream_bytes: deps.config.max_stdout_bytes,
          artifact_bytes: deps.config.max_artifact_bytes,
        },
      },
    ];
  });
  if (refused.length > 0) await endRefused(deps, refused);
  return jobs;
}

/** Why a job must not run that could when it was submitted. Without its language, its code would run as Python. */
function whyNotAnyMore(
  { tenant }: ExecutionRow,
  jobType: JobType,
  choice: ProgramChoice | null,
  program: LeasedJob["program"] | null,
): string | undefined {
  const what = !isFor(tenant, jobType)
    ? `is no longer one of those of tenant ${tenant}`
    : choice && !program
      ? `no longer has the language ${choice.language}`
      : undefined;
  if (what === undefined) return undefined;
  return `The job type ${jobType.name} ${what}: the configuration was changed while the job waited.`;
}

async function endRefused(deps: Deps, refused: [ExecutionRow, string][]): Promise<void> {
  await Promise.all(
    refused.map(async ([execution, message]) => {
      const leaseId = execution.leaseId ?? "";
      const error = { type: "config_error", message, phase: "startup" } as const;
      const end = { kind: "complete", leaseId, status: "failed", error, exitCode: null } as const;
      const ended = await advance(deps.db, { leaseId }, end, deps.now());
      if (ended.kind === "changed") tellEnd(deps, ended.execution);
    }),
  );
  // The slots are free for jobs behind these.
  deps.notifier.notify("job");
}
