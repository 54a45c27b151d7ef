import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { LeasedSession, SessionEnded } from "../../shared/wire/agent/session.ts";
import { describeError } from "../../shared/log-line.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import type { Acquired, SessionStart } from "../job/acquire.ts";
import { failureOutcome } from "../job/outcome.ts";
import { openPlace } from "../job/place.ts";
import { type Lease, type Leases, RunCancelled } from "../lease/leases.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { ChangeSignal } from "../waiting/change-signal.ts";
import { type CallDeps, openSession } from "./open-sessions.ts";

export type SessionDeps = CallDeps & {
  readonly client: Pick<Client, "sessionReady" | "sessionEnded" | "sessionRelease">;
  /** The calls that run now. */
  readonly calls: Leases;
  readonly changes: ChangeSignal;
};

const noFiles = { fetch: () => Promise.resolve([]) };

/**
 * Holds one leased session, from the start of its sandbox to its end. Leaves no sandbox. If the lease is
 * cancelled, the session ends with the calls that run.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function holdSession(agent: SessionDeps, lease: Lease<LeasedSession>): Promise<void> {
  const { lease_id, correlation_id, traceparent } = lease.job;
  const log = agent.log.with({
    correlationId: correlation_id,
    ...(traceparent && { traceparent }),
  });
  const deps = { ...agent, log };
  const { drop, cancel } = lease;
  const ofSession = (): Lease[] =>
    agent.calls.all().filter(({ job }) => job.call?.session_lease_id === lease_id);
  // Before the sandbox is removed, which would be a failure of its call.
  drop.signal.addEventListener("abort", () => {
    for (const call of ofSession()) call.cancel.abort(new RunCancelled("request"));
  });
  using gpus = agent.gpus.lease(0);
  const start = { ...lease, job: asJob(lease.job) };
  try {
    await using place = await openPlace(deps, start, noFiles, gpus, () => {});
    const { sandbox } = place.acquired;
    using _open = await serve(deps, lease, place.acquired);
    await whenAborted(AbortSignal.any([drop.signal, cancel.signal, sandbox.died]));
    const idle = agent.changes.waitUntil(() => ofSession().length === 0);
    await Promise.race([idle, whenAborted(sandbox.died)]);
    if (drop.signal.aborted) return log.info("a session has ended");
    const end = await endOf(sandbox);
    lease.isReporting = true;
    await deps.client.sessionEnded(lease_id, end, lease.drop.signal);
    log.warn("a session ended: {reason}", { reason: end.error.message });
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    if (error instanceof ApiError || lease.drop.signal.aborted)
      return log.warn("a session is dropped: {reason}", { reason: describeError(error) });
    log.error("a session could not start: {reason}", { reason: describeError(error) });
    const isInfrastructure = !(error instanceof JobRefusal) && !cancel.signal.aborted;
    if (isInfrastructure) await deps.engine.checkNow();
    await release(deps, lease, error);
  }
}

/** Serves calls until it is disposed. @throws ApiError. */
async function serve(
  { client, openSessions }: SessionDeps,
  { job, drop }: Lease<LeasedSession>,
  acquired: Acquired,
): Promise<Disposable> {
  const { sandbox, jobRef, runtime } = acquired;
  const { lease_id, env } = job;
  const over = Promise.withResolvers<void>();
  const close = (): void => {
    openSessions.delete(lease_id);
    over.resolve();
  };
  sandbox.beginSession(env);
  // A call may come before the answer to this post.
  openSessions.set(lease_id, openSession(acquired, over.promise));
  try {
    const ready = {
      job_ref: jobRef,
      container_runtime: runtime ?? "",
      container_backend: sandbox.backend,
      python_version: sandbox.pythonVersion,
    };
    await client.sessionReady(lease_id, ready, drop.signal);
    return { [Symbol.dispose]: close };
  } catch (error) {
    close();
    throw error;
  }
}

function whenAborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (signal.aborted) resolve();
  signal.addEventListener("abort", () => resolve(), { once: true });
  return promise;
}

/** Why a session ended that the API did not end. */
async function endOf(sandbox: Sandbox): Promise<SessionEnded> {
  if (!sandbox.died.aborted) {
    const message = "The agent was stopped.";
    return { reason: "agent_stopped", error: inExecution("service_unavailable", message) };
  }
  const found = await sandbox.whyDied();
  return found?.outOfMemory
    ? { reason: "out_of_memory", error: inExecution("oom", noMemory) }
    : { reason: "engine_lost", error: inExecution("internal_error", sandboxLost) };
}

const noMemory = "The session used up its memory limit.";
const sandboxLost = "The sandbox of the session was lost.";

function inExecution(type: ExecutionError["type"], message: string): ExecutionError {
  return { type, message, phase: "execution" };
}

/** Hands back a session that is not ready. */
async function release(
  { client, clock, log }: SessionDeps,
  lease: Lease<LeasedSession>,
  failure: unknown,
): Promise<void> {
  const { drop, takenMs } = lease;
  const times = { takenMs, installMs: 0, startedMs: null, endedMs: clock.nowMs() };
  const outcome = failureOutcome(failure, lease, times);
  const error = outcome.kind === "release" ? outcome.error : outcome.result.error;
  if (error === null) return;
  const agent_stops = outcome.kind === "release" ? outcome.agentStops : undefined;
  try {
    lease.isReporting = true;
    await client.sessionRelease(lease.job.lease_id, { error, agent_stops }, drop.signal);
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    log.warn("a session could not be released: {reason}", { reason: describeError(error) });
  }
}

/** The job in whose name the sandbox of a session is opened. */
function asJob(session: LeasedSession): SessionStart {
  return {
    ...session,
    execution_id: session.session_id,
    code: "",
    input_json: "{}",
    timeout_s: 0,
    caps: { stream_bytes: 0, artifact_bytes: 0 },
  };
}
