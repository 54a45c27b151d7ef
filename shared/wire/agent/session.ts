import { z } from "zod";
import { ExecutionError } from "../errors.ts";
import { ContainerBackend } from "../execution.ts";
import { LeasedFile } from "../file.ts";
import { LeasedJobType } from "./leased-job-type.ts";

const Uuid = z.uuid();

/** Names of an interpreter in a session: "default", or the id of a context that a client has made. */
const ContextName = z.string().max(64);

const Environment = z.record(z.string(), z.string());

/**
 * A leased session: a sandbox whose interpreter serves calls until the session ends. It needs one of the
 * agent's `free_sessions`, and no slot.
 */
export const LeasedSession = z.object({
  lease_id: Uuid,
  session_id: Uuid,
  attempt: z.int(),
  correlation_id: z.string(),
  /** Whose session it is, as in LeasedJob. */
  tenant: z.string(),
  job_type: LeasedJobType,
  /** As in LeasedJob. */
  image: z.string(),
  requirements: z.array(z.string()),
  env: Environment,
  startup_timeout_s: z.int(),
  traceparent: z.string().nullish(),
});
export type LeasedSession = z.infer<typeof LeasedSession>;

/**
 * What a leased job has besides if it is a call of a session. It needs no slot. At most one call of a
 * session is leased at a time, to the agent that holds the session.
 */
export const LeasedCall = z.object({
  session_lease_id: Uuid,
  /** Its place among the calls of its session, from 1. */
  number: z.int().min(1),
  context: ContextName,
  /** The contexts that are left beside "default": the interpreters of others end before the call. */
  contexts: z.array(ContextName),
  /** Whether the context's interpreter starts anew before the code; without code, that is all. */
  restart: z.boolean(),
  /** Set in os.environ for this call only. */
  env: Environment,
  /** Paths of files that come back as artifacts `_fetched/…`. */
  fetch: z.array(z.string()),
  /** Files of /output that have changed are left to the next call: it is one of kind `files`. */
  only_fetches: z.boolean().optional(),
});
export type LeasedCall = z.infer<typeof LeasedCall>;

/** A file of a call. `work`: it is written to /output and the code may change it. Absent: /input, as of jobs. */
export const CallFile = LeasedFile.extend({ to: z.literal("work").optional() });
export type CallFile = z.infer<typeof CallFile>;

/** `POST /agent/v1/sessions/{lease_id}/ready`: the interpreter waits for its first call. */
export const SessionReady = z.object({
  job_ref: z.string().nullable(),
  container_runtime: z.string().max(128),
  container_backend: ContainerBackend,
  python_version: z.string().max(32),
});
export type SessionReady = z.infer<typeof SessionReady>;

/** Why an agent ends a session that was ready. The API alone ends sessions by time or by request. */
export const agentsEnds = ["out_of_memory", "engine_lost", "agent_stopped"] as const;

/**
 * `POST /agent/v1/sessions/{lease_id}/ended`: the sandbox is gone. `POST …/release` (ReleaseReport) gives
 * back a session that was never ready. Each gets 409 if the lease no longer holds; then the agent closes
 * the sandbox and forgets the session.
 */
export const SessionEnded = z.object({ reason: z.enum(agentsEnds), error: ExecutionError });
export type SessionEnded = z.infer<typeof SessionEnded>;
