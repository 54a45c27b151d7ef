import { parseBytes } from "../../shared/bytes.ts";
import { describeError } from "../../shared/log-line.ts";
import { putLast } from "../../shared/lru.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import type {
  LeasedCall,
  LeasedJob,
  LeasedSession,
  SessionEnded,
} from "../../shared/wire/leases.ts";
import type { Client } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import { JobRefusal } from "../host/policy.ts";
import type { CallFile, SandboxCall } from "../sandbox/job.ts";
import { type Sandbox, withRun } from "../sandbox/sandbox.ts";
import type { SpooledArtifact } from "../sandbox/verdict.ts";
import type { ChangeSignal } from "../waiting.ts";
import { type Lease, type Leases, RunCancelled } from "./leases.ts";
import { failureOutcome } from "./post.ts";
import { type Acquired, type FindPlace, openPlace, sandboxJob } from "./place.ts";
import { type RunDeps, runLease } from "./run.ts";

export type SessionDeps = CallDeps & {
  readonly client: Pick<Client, "sessionReady" | "sessionEnded" | "sessionRelease">;
  /** The calls that run now. */
  readonly calls: Leases;
  readonly changes: ChangeSignal;
};

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
  try {
    const files = { fetch: () => Promise.resolve([]) };
    await using place = await openPlace(deps, lease, null, { files, took: () => {} });
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
  acquired: Acquired<null>,
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

/** `openSessions`: where the calls of each session that is ready here run, by the lease of the session. */
type CallDeps = RunDeps & { readonly openSessions: Map<string, FindPlace> };

/** Runs a call in the sandbox of its session. Returns the next call, as `runLease` does, unless the session has ended. */
export async function runCall(
  deps: CallDeps,
  lease: Lease,
  takes: () => boolean,
): Promise<readonly LeasedJob[]> {
  const id = lease.job.call?.session_lease_id ?? "";
  const findPlace = deps.openSessions.get(id) ?? findNone;
  return runLease(deps, lease, () => takes() && deps.openSessions.has(id), findPlace);
}

const findNone: FindPlace = () =>
  Promise.reject(new JobRefusal("internal_error", "The session has ended at its agent."));

/** Calls run in the sandbox of `acquired`, one at a time. `over` resolves once the API knows that the session has ended. */
function openSession(acquired: Acquired<null>, over: Promise<void>): FindPlace {
  const { sandbox } = acquired;
  const files = createBroughtFiles();
  /** A file is sent again if it has changed. */
  const known = createKnownFiles();

  const isNew = (file: SpooledArtifact): boolean =>
    file.name.startsWith("_fetched/") || !known.learn(file);

  return async (deps, { job, cancel, drop }, needs) => {
    const signal = AbortSignal.any([cancel.signal, drop.signal]);
    await deps.admission.admitJob(job, acquired.runtime, signal);
    const brought = await needs.files.fetch(signal);
    files.admit(brought, parseBytes(job.job_type.memory_limit) / 4);
    for (const file of brought) if (file.to === "work") known.learn(file);
    return {
      acquired: {
        ...acquired,
        job: { ...sandboxJob(job), call: job.call && sandboxCall(job.call, brought) },
        sandbox: withRun(sandbox, async (own, options) => {
          try {
            const report = await sandbox.run(own, options);
            return { ...report, artifacts: report.artifacts.filter(isNew) };
          } finally {
            // Else the API leases the next call after the result of this one, and that one fails.
            if (sandbox.died.aborted) await over;
          }
        }),
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  };
}

function sandboxCall(call: LeasedCall, files: readonly CallFile[]): SandboxCall {
  const { number, context, contexts, restart, env, fetch, only_fetches: onlyFetches } = call;
  return { number, context, contexts, restart, env, fetch, onlyFetches, files };
}

/** Files that calls bring. Those in /input stay, and use the memory of the session. */
export function createBroughtFiles(mostInputs = 1000) {
  /** Bytes of the files in /input by name. */
  let inputs = new Map<string, number>();
  return {
    /** Takes the files of a call, all or none. @throws JobRefusal if they have no room. */
    admit: (files: readonly CallFile[], mostBytes: number): void => {
      const all = new Map(inputs);
      let bytes = 0;
      for (const { name, to, sizeBytes } of files) {
        if (to === "work") {
          bytes += sizeBytes;
          continue;
        }
        const other = [...all.keys()].find((each) => isInTheWay(each, name));
        if (other !== undefined) {
          const [held, brought] = [JSON.stringify(other), JSON.stringify(name)];
          throw refusal(`The session has ${held} in /input, so there can be no ${brought}.`);
        }
        all.set(name, sizeBytes);
      }
      if (all.size > mostInputs) {
        throw refusal(
          `The calls of the session have brought more than ${mostInputs} files to /input.`,
        );
      }
      for (const each of all.values()) bytes += each;
      if (bytes > mostBytes) throw tooLarge;
      inputs = all;
    },
  };
}

/** Whether one is a folder of the other. */
const isInTheWay = (one: string, other: string): boolean =>
  one.startsWith(`${other}/`) || other.startsWith(`${one}/`);

const refusal = (message: string): JobRefusal => new JobRefusal("config_error", message);

const tooLarge = refusal(
  "The files that the calls of the session have brought have more bytes than a quarter of its memory limit.",
);

/**
 * Which content of which file the API has. Knows the last `most` names: code makes as many as it likes. A file that is
 * forgotten is sent again.
 */
export function createKnownFiles(most = 10_000) {
  const hashes = new Map<string, string>();
  return {
    /** Whether the API has this content, which it then has. */
    learn({ name, sha256 }: { readonly name: string; readonly sha256: string }): boolean {
      const isKnown = hashes.get(name) === sha256;
      putLast(hashes, name, sha256, most);
      return isKnown;
    },
  };
}
