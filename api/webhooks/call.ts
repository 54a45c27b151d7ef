import type { Deps } from "../deps.ts";
import { type StoredEvent, webhookBody, webhookId } from "../domain/webhooks/event.ts";
import { nextTry } from "../domain/webhooks/retry.ts";
import { secretOf, signedHeaders } from "../domain/webhooks/signature.ts";
import { type CallOutcome, type DeliveryRow } from "../store/webhooks/deliveries.ts";
import { version } from "../version.ts";
import { targetOf } from "./receivers.ts";

/** What a platform does: one POST that follows no redirect and reads no more than the head of an answer. */
export type Post = (
  url: URL,
  headers: Record<string, string>,
  body: string,
  signal: AbortSignal,
) => Promise<Answer>;

export interface Answer {
  status: number;
  /** The header Retry-After. */
  retryAfter: string | null;
}

/** An address that must not be called, at least not now. The message names no host: tenants see it, and a host may be an operator's. */
export class AddressRefusal extends Error {
  override name = "AddressRefusal";
}

/** Calls a receiver once, and says what comes next for the delivery. */
export async function call(
  { config, log, now }: Deps,
  post: Post,
  delivery: DeliveryRow,
  event: StoredEvent,
  random: () => number,
  signal: AbortSignal,
): Promise<CallOutcome> {
  const target = targetOf(config, delivery);
  if ("refusal" in target) return failedForGood(target.refusal, now());
  const id = webhookId(event);
  const body = webhookBody(event);
  const secrets =
    delivery.callbackUrl === null
      ? target.secrets
      : await Promise.all(target.secrets.map((one) => secretOf(delivery.tenant, one)));
  const headers = {
    "Content-Type": "application/json",
    "User-Agent": `Airlock/${version}`,
    ...(await signedHeaders({ id, timestamp: Math.floor(now() / 1000), body }, secrets)),
  };
  const answer = await post(new URL(target.url), headers, body, signal).catch(
    (error: unknown): { error: string } => ({ error: reasonOf(error) }),
  );
  if ("status" in answer && answer.status >= 200 && answer.status < 300) {
    return { status: "delivered", dueAt: now(), statusCode: answer.status, error: null };
  }
  const { status = null, retryAfter = null } = "status" in answer ? answer : {};
  const error = "error" in answer ? answer.error : refusalOf(answer.status);
  const next = nextTry({ tries: delivery.tries, status, retryAfter }, now(), random());
  // Neither address nor answer: both may contain secrets.
  log.info("webhook {id} to {receiver} failed at try {tries}, {next}: {error}", {
    id,
    receiver: delivery.receiver,
    tries: delivery.tries,
    error,
    next: next === undefined ? "the last one" : `next ${new Date(next).toISOString()}`,
  });
  return {
    status: next === undefined ? "failed" : "pending",
    dueAt: next ?? now(),
    statusCode: status,
    error,
  };
}

function failedForGood(error: string, now: number): CallOutcome {
  return { status: "failed", dueAt: now, statusCode: null, error };
}

function refusalOf(status: number): string {
  if (status === 410) return "the receiver answered 410: it wants no more calls";
  if (status >= 300 && status < 400)
    return `the receiver answered ${status}: redirects are not followed`;
  return `the receiver answered ${status}`;
}

/** Tenants see this text, so it must not name the host of an operator's endpoint. */
function reasonOf(error: unknown): string {
  if (error instanceof AddressRefusal) return error.message;
  if (error instanceof Error && error.name === "TimeoutError") return "no answer in time";
  const { name, code } = error as Error & { code?: unknown };
  return `no connection: ${typeof code === "string" ? code : name}`;
}
