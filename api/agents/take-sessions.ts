import type { PollRequest } from "../../shared/wire/agent/lease.ts";
import type { LeasedSession } from "../../shared/wire/agent/session.ts";
import type { Deps } from "../deps.ts";
import { digestOf, type Environment } from "../domain/environment.ts";
import { resolveJobType, toLeasedJobType } from "../domain/job-types.ts";
import { tellSession } from "../sessions/tell-session.ts";
import type { LeaseTerms } from "../store/jobs/lease.ts";
import {
  claimSessions,
  isAnySessionQueued,
  undeliveredSessions,
} from "../store/sessions/session-lease.ts";
import type { SessionRow } from "../store/sessions/sessions.ts";
import { offers, placedOf } from "./take-jobs.ts";

/** Leases sessions to an agent that has room for them, only of job types that it may run. They need no slot. */
export async function takeSessions(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
): Promise<LeasedSession[]> {
  const { db } = deps;
  const { free_sessions, sessions: held = [] } = request;
  if (free_sessions === undefined) return [];
  const undelivered = await undeliveredSessions(db, lease, held);
  const free = free_sessions - undelivered.length;
  const claimed =
    free > 0 && (await isAnySessionQueued(db, lease.now))
      ? await claimSessions(db, lease, free, await offers(deps, placedOf(request), environments))
      : [];
  for (const session of claimed) tellSession(deps, { session, calls: [] });
  return [...undelivered, ...claimed].flatMap((session) => describe(deps, session));
}

function describe({ config }: Deps, session: SessionRow): LeasedSession[] {
  const jobType = resolveJobType(config, session.jobType);
  if (session.leaseId === null || !jobType) return [];
  return [
    {
      lease_id: session.leaseId,
      session_id: session.id,
      attempt: session.attempt,
      correlation_id: session.correlationId,
      tenant: session.tenant,
      job_type: toLeasedJobType(jobType),
      image: session.jobRef === null ? jobType.base_image : digestOf(session.jobRef),
      requirements: config.allow_runtime_requirements ? session.requirements : [],
      env: session.env ?? {},
      startup_timeout_s: session.startupTimeoutS,
      traceparent: session.traceparent,
    },
  ];
}
