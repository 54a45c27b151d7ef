import { createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { WebhookEventPage } from "../../typescript/src/index.ts";
import { UsageError } from "./exit.ts";

type Message = WebhookEventPage["items"][number];

/** The outcome of one call. */
export interface Called {
  /** The answer's status; null if there was none. */
  status: number | null;
  /** Why it failed. */
  error: string | null;
  tookMs: number;
  /** Pause until the next try; null if there is none. */
  againMs: number | null;
}

const timeoutMs = 15_000;
/** For a receiver that is restarted or debugged; the service itself tries for three days. */
const pausesMs = [1000, 5000];

/** Calls a receiver with an event, and repeats the call if it fails. Yields the outcome of each try. */
export async function* forward(
  receiver: URL,
  secret: Buffer,
  message: Message,
  signal: AbortSignal,
): AsyncGenerator<Called> {
  for (const pauseMs of [...pausesMs, null]) {
    const began = performance.now();
    const { status, error } = await callOnce(receiver, secret, message, signal);
    signal.throwIfAborted();
    const againMs = error === null || status === 410 ? null : pauseMs;
    yield { status, error, tookMs: performance.now() - began, againMs };
    if (againMs === null) return;
    await sleep(againMs, undefined, { signal });
  }
}

async function callOnce(
  receiver: URL,
  secret: Buffer,
  message: Message,
  signal: AbortSignal,
): Promise<Pick<Called, "status" | "error">> {
  const body = JSON.stringify(message.event);
  const headers = { "Content-Type": "application/json", ...sign(secret, message.webhook_id, body) };
  const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  try {
    const init = { method: "POST", headers, body, redirect: "manual", signal: limit } as const;
    const answer = await fetch(receiver, init);
    await answer.body?.cancel();
    const { status, ok } = answer;
    if (ok) return { status, error: null };
    const isRedirect = status >= 300 && status < 400;
    return { status, error: isRedirect ? "redirects are not followed" : "the receiver refused it" };
  } catch (error) {
    return { status: null, error: reasonOf(error) };
  }
}

/** The headers of Standard Webhooks. */
function sign(secret: Buffer, id: string, body: string): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1000));
  const mac = createHmac("sha256", secret).update(`${id}.${timestamp}.${body}`).digest("base64");
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${mac}`,
  };
}

/** An address as people write it: `localhost:9000/hook` means plain HTTP. */
export function parseReceiver(given: string): URL {
  const url = URL.parse(/^[a-z]+:\/\//i.test(given) ? given : `http://${given}`);
  if (url && /^https?:$/.test(url.protocol) && url.username === "") return url;
  throw new UsageError(
    `--forward-to "${given}" must be the address of a receiver, such as http://localhost:9000/hook`,
  );
}

/** The bytes of a `whsec_` secret. */
export function parseSecret(given: string): Buffer {
  const bytes = Buffer.from(given.replace(/^whsec_/, ""), "base64");
  const isWhole = `whsec_${bytes.toString("base64")}` === given;
  if (isWhole && bytes.length >= 24 && bytes.length <= 64) return bytes;
  throw new UsageError("--secret must be whsec_ and the Base64 of 24 to 64 bytes");
}

function reasonOf(error: unknown): string {
  if (error instanceof Error && error.name === "TimeoutError") {
    return `no answer within ${timeoutMs / 1000} s`;
  }
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  if (!(cause instanceof Error)) return String(error);
  if ("code" in cause && cause.code === "ECONNREFUSED") return "nothing listens there";
  return `no connection: ${cause.message}`;
}
