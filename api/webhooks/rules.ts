import type { z } from "zod";
import { base64, fromBase64 } from "../../shared/bytes.ts";
import type { ExecutionErrorType, ExecutionPhase } from "../../shared/wire/errors.ts";
import type { Relationship, TerminalStatus } from "../../shared/wire/executions.ts";
import type { WebhookEvent, WebhookType } from "../../shared/wire/webhooks.ts";

/** What the trigger keeps of an execution. Times are epoch milliseconds. */
interface EventData {
  job_type: string;
  attempt: number;
  created_at: number;
  started_at: number | null;
  exit_code: number | null;
  error_type: ExecutionErrorType | null;
  phase: ExecutionPhase | null;
  correlation_id: string;
  metadata: Record<string, string> | null;
  batch_id: string | null;
  session_id: string | null;
  parent_execution_id: string | null;
  relationship: z.infer<typeof Relationship> | null;
  traceparent: string | null;
}

/** An event as the store has it. */
export interface StoredEvent {
  tenant: string;
  executionId: string;
  type: WebhookType;
  data: string;
  createdAt: number;
}

/** Equal for all receivers and tries of an event, so that a receiver can ignore repeats. */
export function webhookId({ executionId }: Pick<StoredEvent, "executionId">): string {
  return `evt_${executionId}`;
}

/** The body of a call: the same text at every try. */
export function webhookBody(event: StoredEvent): string {
  return JSON.stringify(toEvent(event));
}

export function toEvent({
  tenant,
  executionId: id,
  type,
  data,
  createdAt,
}: StoredEvent): WebhookEvent {
  const kept = JSON.parse(data) as EventData;
  const { error_type, phase } = kept;
  return {
    type,
    timestamp: time(createdAt),
    data: {
      job_id: id,
      tenant,
      status: type.slice("execution.".length) as TerminalStatus,
      job_type: kept.job_type,
      attempt: kept.attempt,
      created_at: time(kept.created_at),
      started_at: kept.started_at === null ? null : time(kept.started_at),
      ended_at: time(createdAt),
      exit_code: kept.exit_code,
      error: error_type && phase ? { type: error_type, phase } : null,
      correlation_id: kept.correlation_id,
      ...(kept.metadata && { metadata: kept.metadata }),
      ...(kept.batch_id !== null && { batch_id: kept.batch_id }),
      ...(kept.session_id !== null && { session_id: kept.session_id }),
      ...(kept.parent_execution_id !== null && { parent_execution_id: kept.parent_execution_id }),
      ...(kept.relationship && { relationship: kept.relationship }),
      ...(kept.traceparent !== null && { traceparent: kept.traceparent }),
      links: { record: `/executions/${id}`, result: `/jobs/${id}/result` },
    },
  };
}

const time = (epochMs: number): string => new Date(epochMs).toISOString();

const secondMs = 1000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

/** Pauses after failed calls: three days in all, then the delivery has failed. */
export const pausesMs = [
  5 * secondMs,
  30 * secondMs,
  2 * minuteMs,
  10 * minuteMs,
  30 * minuteMs,
  hourMs,
  2 * hourMs,
  4 * hourMs,
  8 * hourMs,
  12 * hourMs,
  20 * hourMs,
  24 * hourMs,
];

/** Longest pause that a receiver can ask for. */
const longestMs = 24 * hourMs;

/** A failed call. */
interface Failure {
  /** Number of calls so far. */
  tries: number;
  status: number | null;
  /** The answer's header Retry-After. */
  retryAfter: string | null;
}

/**
 * When to call again (epoch ms), or undefined if there is no further try: after the last pause, or when
 * the receiver says that it is gone (410).
 *
 * @param random From 0 to 1. It spreads calls that failed at the same time over a fifth of the pause.
 */
export function nextTry(
  { tries, status, retryAfter }: Failure,
  now: number,
  random: number,
): number | undefined {
  const pauseMs = pausesMs[tries - 1];
  if (status === 410 || pauseMs === undefined) return undefined;
  const spreadMs = pauseMs * (0.9 + 0.2 * random);
  return Math.round(now + Math.max(spreadMs, Math.min(askedMs(retryAfter, now), longestMs)));
}

/** Retry-After is a number of seconds or a date. */
function askedMs(retryAfter: string | null, now: number): number {
  if (retryAfter === null) return 0;
  if (/^[0-9]{1,9}$/.test(retryAfter)) return Number(retryAfter) * secondMs;
  const at = /^[A-Z][a-z]+, /.test(retryAfter) ? Date.parse(retryAfter) : NaN;
  return Number.isNaN(at) ? 0 : at - now;
}

/** What identifies a call; the headers of Standard Webhooks without `webhook-signature`. */
interface Call {
  id: string;
  /** Seconds since the epoch. */
  timestamp: number;
  body: string;
}

/**
 * The headers of a call, signed with each secret: a receiver needs to know one of them.
 * Source: https://www.standardwebhooks.com
 */
export async function signedHeaders(call: Call, secrets: readonly string[]) {
  const signatures = await Promise.all(secrets.map((secret) => signature(call, secret)));
  return {
    "webhook-id": call.id,
    "webhook-timestamp": String(call.timestamp),
    "webhook-signature": signatures.join(" "),
  };
}

/**
 * What signs the calls to receivers that a tenant's requests name: whoever verifies with one could sign for all
 * others that have it. The tenant `default` has the configured secret itself.
 */
export async function secretOf(tenant: string, secret: string): Promise<string> {
  return tenant === "default" ? secret : `whsec_${await hmac(secret, tenant)}`;
}

async function signature({ id, timestamp, body }: Call, secret: string): Promise<string> {
  return `v1,${await hmac(secret, `${id}.${timestamp}.${body}`)}`;
}

/** HMAC-SHA256 of a text, as base64. */
async function hmac(secret: string, text: string): Promise<string> {
  const bytes = fromBase64(secret.slice("whsec_".length));
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text));
  return base64(new Uint8Array(mac));
}

/**
 * Whether a configured host allows an address: its scheme (HTTPS unless the entry begins with http://),
 * its name (`*.` stands for one or more labels) and its port.
 */
export function isAllowedCallback(url: string, hosts: readonly string[]): boolean {
  const { protocol, hostname, port } = new URL(url);
  return hosts.some((entry) => {
    const isPlain = entry.startsWith("http://");
    if (protocol !== (isPlain ? "http:" : "https:")) return false;
    const place = isPlain ? entry.slice("http://".length) : entry;
    const [, name = "", givenPort = ""] = /^(.*?)(?::([0-9]+))?$/.exec(place) ?? [];
    if (Number(givenPort || defaultPort(protocol)) !== Number(port || defaultPort(protocol))) {
      return false;
    }
    return name.startsWith("*.") ? hostname.endsWith(name.slice(1)) : hostname === name;
  });
}

const defaultPort = (protocol: string): number => (protocol === "https:" ? 443 : 80);
