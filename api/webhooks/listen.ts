import type { WebhookEventPage } from "../../shared/wire/client/webhook.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { toEvent, webhookId } from "../domain/webhooks/event.ts";
import { eventsAfter, keepListening, lastEvent } from "../store/webhooks/listen.ts";

/** A request stores this listening time, once less than half of it is left. */
const listeningMs = 120_000;
/** How often a waiting request queries. Nothing wakes it, so the end of an execution costs nothing more. */
const lookMs = 500;

/**
 * Returns the events after a cursor, once there are any or `waitMs` have passed. Without a cursor, returns
 * the newest one at once. A cursor above the newest one is from a database that was replaced, and is
 * ignored. Each request keeps the service storing events for at least another minute.
 */
export async function listenForEvents(
  { db, now, recheck }: ClientDeps,
  { after, limit, waitMs }: { after: number | undefined; limit: number; waitMs: number },
  signal: AbortSignal,
): Promise<WebhookEventPage> {
  if (db.tenant === "*") {
    const detail = "Events are those of one tenant: name it in X-Airlock-Tenant.";
    throw new AppError("invalid_request", detail);
  }
  // A first request gets its cursor at once.
  const end = now() + (after === undefined ? 0 : waitMs);
  const until = await keepListening(db, end + listeningMs / 2, end + listeningMs);
  // Read after the listening time is stored, so that every later end has a higher number.
  const newest = await lastEvent(db);
  const from = Math.min(after ?? newest, newest);
  const waitsUntil = from === after ? end : 0;
  let rows = await eventsAfter(db, from, limit + 1);
  while (rows.length === 0 && now() < waitsUntil && !signal.aborted) {
    await pause(Math.min(lookMs, end - now()), signal);
    await recheck();
    rows = await eventsAfter(db, from, limit + 1);
  }
  const shown = rows.slice(0, limit);
  return {
    items: shown.map((row) => ({ webhook_id: webhookId(row), event: toEvent(row) })),
    cursor: String(shown.at(-1)?.seq ?? from),
    has_more: rows.length > limit,
    listening_s: Math.max(0, Math.floor((until - now()) / 1000)),
  };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done, { once: true });
    if (signal.aborted) done();
  });
}
