import { decodeUtf8 } from "../../shared/bytes.ts";
import type { CallFile, LeasedCall } from "../../shared/wire/agent/session.ts";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { Deps } from "../deps.ts";
import { digestOf } from "../domain/environment.ts";
import { isFor, resolveJobType, toLeasedJobType } from "../domain/job-types.ts";
import { type ProgramChoice, resolveProgram } from "../domain/program.ts";
import { leasedTools } from "../domain/tools.ts";
import { isFollowed, tellEnd, tellFollowers } from "../jobs/followed.ts";
import { advance } from "../store/jobs/advance.ts";
import { filesOf, type InputFileInfo } from "../store/jobs/input-files.ts";
import { submittedPayloads } from "../store/jobs/lease.ts";
import type { ExecutionRow, SubmittedPayload } from "../store/jobs/row.ts";
import { findSessions, type SessionRow } from "../store/sessions/sessions.ts";

/** What an agent needs to run leased executions. Ends those that may not run any more. */
export async function describeJobs(deps: Deps, executions: ExecutionRow[]): Promise<LeasedJob[]> {
  const ids = executions.map((execution) => execution.id);
  const [payloads, files, sessions] = await Promise.all([
    submittedPayloads(deps.db, ids),
    filesOf(deps.db, executions),
    findSessions(
      deps.db,
      executions.flatMap(({ sessionId }) => sessionId ?? []),
    ),
  ]);
  for (const execution of executions) tellFollowers(deps, execution);
  const refused: [ExecutionRow, string][] = [];
  const jobs = executions.flatMap((execution) => {
    const payload = payloads.get(execution.id);
    const jobType = resolveJobType(deps.config, execution.jobType);
    const session = sessions.find(({ id }) => id === execution.sessionId);
    if (!payload || execution.leaseId === null) return [];
    if (!jobType) {
      if (session) refused.push([execution, noJobType(execution)]);
      return [];
    }
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
        ...(session && { call: toLeasedCall(execution, payload, session) }),
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

function toLeasedFile({ name, sizeBytes, sha256, toWork }: InputFileInfo): CallFile {
  return { name, size_bytes: sizeBytes, sha256, ...(toWork && { to: "work" }) };
}

function toLeasedCall(
  { call, context, kind }: ExecutionRow,
  { call: options }: SubmittedPayload,
  { leaseId, contexts }: SessionRow,
): LeasedCall {
  return {
    session_lease_id: leaseId!,
    number: call!,
    context: context!,
    contexts,
    restart: options?.restart ?? false,
    env: options?.env ?? {},
    fetch: options?.fetch ?? [],
    ...(kind === "files" && { only_fetches: true }),
  };
}

const noJobType = ({ jobType }: ExecutionRow): string =>
  `The job type ${jobType} is not configured any more: the configuration was changed while the session lived.`;

/** Why a job must not run that could when it was submitted. Without its language, its code would run as Python. */
function whyNotAnyMore(
  { tenant }: ExecutionRow,
  jobType: JobType,
  choice: ProgramChoice | null,
  program: LeasedJob["program"] | null,
): string | undefined {
  const what = !isFor(tenant, jobType)
    ? `is no longer open to tenant ${tenant}`
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
