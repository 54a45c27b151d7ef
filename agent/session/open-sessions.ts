import type { Logger } from "@logtape/logtape";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import type { LeasedCall } from "../../shared/wire/agent/session.ts";
import { type Acquired, sandboxJob } from "../job/acquire.ts";
import type { FindPlace } from "../job/place.ts";
import { type RunDeps, runLease } from "../job/run.ts";
import type { Lease } from "../lease/leases.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { CallFile, SandboxCall } from "../sandbox/job.ts";
import type { SpooledArtifact } from "../sandbox/report.ts";
import { createBroughtFiles } from "./brought-files.ts";
import { createKnownFiles } from "./known-files.ts";
import { parseBytes } from "../../shared/bytes.ts";

/** A session that is ready here. */
export interface OpenSession {
  /** Where its calls run. */
  readonly findPlace: FindPlace;
}

/** The sessions that are ready here, by their leases. */
export type OpenSessions = Map<string, OpenSession>;

export type CallDeps = RunDeps & { readonly openSessions: OpenSessions; readonly log: Logger };

/** Runs a call in the sandbox of its session. Returns the next call, as `runLease` does, unless the session has ended. */
export async function runCall(
  deps: CallDeps,
  lease: Lease,
  takes: () => boolean,
): Promise<readonly LeasedJob[]> {
  const id = lease.job.call?.session_lease_id ?? "";
  const findPlace = deps.openSessions.get(id)?.findPlace ?? findNone;
  return runLease(deps, lease, () => takes() && deps.openSessions.has(id), findPlace);
}

const findNone: FindPlace = () =>
  Promise.reject(new JobRefusal("internal_error", "The session has ended at its agent."));

/** Calls run in the sandbox of `acquired`, one at a time. `over` resolves once the API knows that the session has ended. */
export function openSession(acquired: Acquired, over: Promise<void>): OpenSession {
  const { sandbox } = acquired;
  const files = createBroughtFiles();
  /** A file is sent again if it has changed. */
  const known = createKnownFiles();

  const isNew = (file: SpooledArtifact): boolean =>
    file.name.startsWith("_fetched/") || !known.learn(file);

  return {
    async findPlace(deps, { job, cancel, drop }, given) {
      const signal = AbortSignal.any([cancel.signal, drop.signal]);
      await deps.admission.admitJob(job, acquired.runtime, signal);
      const brought = await given.fetch(signal);
      files.admit(brought, parseBytes(job.job_type.memory_limit) / 4);
      for (const file of brought) if (file.to === "work") known.learn(file);
      return {
        acquired: {
          ...acquired,
          job: { ...sandboxJob(job), call: job.call && sandboxCall(job.call, brought) },
          sandbox: {
            ...sandbox,
            backend: sandbox.backend,
            async run(own, options) {
              try {
                const report = await sandbox.run(own, options);
                return { ...report, artifacts: report.artifacts.filter(isNew) };
              } finally {
                // Else the API leases the next call after the result of this one, and that one fails.
                if (sandbox.died.aborted) await over;
              }
            },
          },
        },
        [Symbol.asyncDispose]: () => Promise.resolve(),
      };
    },
  };
}

function sandboxCall(call: LeasedCall, files: readonly CallFile[]): SandboxCall {
  const { number, context, contexts, restart, env, fetch, only_fetches: onlyFetches } = call;
  return { number, context, contexts, restart, env, fetch, onlyFetches, files };
}
