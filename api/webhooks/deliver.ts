import type { Config } from "../../shared/config/config.ts";
import { type WebhookType, webhookTypes } from "../../shared/wire/webhooks.ts";
import type { Deps, Notifier, Subscription } from "../deps.ts";
import { isFor } from "../jobs/environment.ts";
import { rideOut } from "../store/database.ts";
import { version } from "../version.ts";
import {
  isAllowedCallback,
  nextTry,
  secretOf,
  signedHeaders,
  type StoredEvent,
  webhookBody,
  webhookId,
} from "./rules.ts";
import {
  type CallOutcome,
  claimDue,
  type DeliveryRow,
  eventsOf,
  fanOut,
  type NewEvent,
  newEvents,
  nextDue,
  type Receiver,
  recordCall,
  releaseCall,
} from "./sql.ts";

interface SenderLimits {
  /** Calls at the same time. */
  atOnce: number;
  /** A receiver that has this many calls at the moment gets no more. */
  each: number;
  /** Time for one call. */
  timeoutMs: number;
  /** From 0 to 1. */
  random: () => number;
  /** Called when a call ends that others had to wait for. */
  onPlace: () => void;
}

/** Workers may wait for six answers at a time. */
const defaults: SenderLimits = {
  atOnce: 6,
  each: 4,
  timeoutMs: 15_000,
  random: Math.random,
  onPlace: () => {},
};
/** Time for a call's outcome to reach the database. */
const marginMs = 45_000;
const eventsAtOnce = 200;

export type Sender = ReturnType<typeof webhookSender>;

/** Makes the calls to receivers. Several senders may serve one database. */
export function webhookSender(deps: Deps, post: Post, limits: Partial<SenderLimits> = {}) {
  const { db, log, now } = deps;
  const { atOnce, each, timeoutMs, random, onPlace } = { ...defaults, ...limits };
  const stopping = new AbortController();
  /** Calls that are being made. */
  const calls = new Map<Promise<void>, DeliveryRow>();
  let isPlaceWanted = false;

  async function make(delivery: DeliveryRow, event: StoredEvent): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(timeoutMs)]);
    const outcome = await call(deps, post, delivery, event, random, signal);
    const isBrokenOff = stopping.signal.aborted && outcome.status === "pending";
    await rideOut(deps, () =>
      isBrokenOff ? releaseCall(db, delivery, now()) : recordCall(db, delivery, outcome, now()),
    );
  }

  function begin(delivery: DeliveryRow, event: StoredEvent): void {
    const made = make(delivery, event)
      .catch((error: unknown) => log.error("webhooks: {error}", { error }))
      .finally(() => {
        calls.delete(made);
        if (isPlaceWanted) onPlace();
      });
    calls.set(made, delivery);
  }

  async function fanOutNew(): Promise<void> {
    for (;;) {
      const events = await newEvents(db, { most: eventsAtOnce });
      if (events.length === 0) return;
      const fanned = events.map((event) => ({ event, receivers: receiversOf(deps.config, event) }));
      await fanOut(db, fanned, now());
      if (events.length < eventsAtOnce) return;
    }
  }

  function callsBy(what: "receiver" | "tenant"): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { [what]: one } of calls.values()) counts.set(one, (counts.get(one) ?? 0) + 1);
    return counts;
  }

  return {
    /**
     * Gives new events their deliveries, and begins up to `most` calls that are due.
     *
     * @returns The number of begun calls; if none, when the next one is due (epoch ms).
     */
    async sendDue(most = Infinity): Promise<{ begun: number; dueAt: number | undefined }> {
      await fanOutNew();
      const busy = callsBy("receiver");
      const except = [...busy].filter(([, n]) => n >= each).map(([receiver]) => receiver);
      // A call that ends during the next query must wake the sender too.
      isPlaceWanted = except.length > 0;
      const dueAt = await nextDue(db, except);
      const free = Math.min(most, atOnce - calls.size);
      isPlaceWanted ||= free <= 0;
      const isDue = dueAt !== undefined && dueAt <= now();
      if (!isDue || free <= 0 || stopping.signal.aborted) return { begun: 0, dueAt };
      const claimed = await claimDue(db, {
        now: now(),
        until: now() + timeoutMs + marginMs,
        most: free,
        each,
        busy,
        busyTenants: callsBy("tenant"),
      });
      // The event must be on disk before a receiver hears of it.
      await db.durable();
      const events = await eventsOf(db, claimed);
      for (const delivery of claimed) {
        const event = events.get(delivery.eventSeq);
        if (event) begin(delivery, event);
      }
      return { begun: claimed.length, dueAt };
    },
    /** Resolves when one of the calls that are being made ends. */
    oneEnded: () => Promise.race(calls.keys()),
    isBusy: () => calls.size > 0,
    /** Breaks off its calls. They are made again by the next sender. */
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.all(calls.keys());
    },
  };
}

/** Wake-ups are hints; events of processes that died are found within this time. */
const backstopMs = 30_000;
const outageMs = 5_000;

/** Sends whenever it is woken or a call is due, until the signal aborts. */
export async function sendForever(
  sender: Sender,
  { log, now }: Deps,
  wakes: Subscription,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    let waitMs = backstopMs;
    try {
      const { begun, dueAt = Infinity } = await sender.sendDue();
      if (begun > 0) continue;
      // Deliveries that are due already wait for a free place: the end of a call wakes this loop too.
      if (dueAt > now()) waitMs = Math.min(waitMs, dueAt - now());
    } catch (error) {
      log.warn("webhooks wait for the database: {error}", { error });
      waitMs = outageMs;
    }
    await wakes.next(waitMs, signal);
  }
}

/**
 * Sends up to `most` deliveries, also those of events that come while it waits for a slow receiver.
 *
 * @param nextWake Resolves at the next hint that there are new events.
 * @returns When the next delivery is due (epoch ms); undefined if none is.
 */
export async function sendSome(
  sender: Sender,
  most: number,
  nextWake: () => Promise<void> = () => new Promise(() => {}),
): Promise<number | undefined> {
  let left = most;
  for (;;) {
    const woken = nextWake();
    const { begun, dueAt } = await sender.sendDue(left);
    left -= begun;
    if (begun > 0 && left > 0) continue;
    if (!sender.isBusy()) return dueAt;
    await Promise.race([sender.oneEnded(), woken]);
  }
}

/** What a platform does: one POST that follows no redirect and reads no more than the head of an answer. */
export type Post = (
  url: URL,
  headers: Record<string, string>,
  body: string,
  signal: AbortSignal,
) => Promise<Answer>;

interface Answer {
  status: number;
  /** The header Retry-After. */
  retryAfter: string | null;
}

/** An address that must not be called, at least not now. The message names no host: tenants see it, and a host may be an operator's. */
export class AddressRefusal extends Error {
  override name = "AddressRefusal";
}

/** Calls a receiver once, and says what comes next for the delivery. */
async function call(
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
    receiver:
      delivery.callbackUrl === null ? delivery.receiver : new URL(delivery.callbackUrl).origin,
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

type WebhookConfig = Pick<Config, "webhook_endpoints" | "webhook_callbacks">;

/** Whether any receiver or callback is configured. */
export function hasReceivers(config: WebhookConfig): boolean {
  return Object.keys(config.webhook_endpoints).length > 0 || config.webhook_callbacks !== undefined;
}

/** The types that configured endpoints want. Callbacks get every type. */
export function wantedTypes({ webhook_endpoints: endpoints }: WebhookConfig): WebhookType[] {
  const wants = Object.values(endpoints).map(({ events = webhookTypes }) => events);
  return webhookTypes.filter((type) => wants.some((types) => types.includes(type)));
}

/** Who gets an event. */
function receiversOf(
  { webhook_endpoints: endpoints }: WebhookConfig,
  { type, tenant, callbackUrl }: NewEvent,
): Receiver[] {
  const named = Object.entries(endpoints)
    .filter(([, { events = webhookTypes }]) => events.includes(type))
    .filter(([, endpoint]) => isFor(tenant, endpoint))
    .map(([name]) => ({ receiver: name, callbackUrl: null }));
  if (callbackUrl === null) return named;
  return [...named, { receiver: callbacksOf(tenant, callbackUrl), callbackUrl }];
}

/** Each claim looks at every receiver that has a call to make. */
const callbackGroups = 64;

/**
 * The receiver that a callback counts for: one of a few of its tenant, however many hosts the tenant names. A host that
 * answers one tenant slowly may serve others, too.
 */
function callbacksOf(tenant: string, callbackUrl: string): string {
  let hash = 0;
  for (const char of new URL(callbackUrl).origin)
    hash = (31 * hash + char.charCodeAt(0)) % 1_000_003;
  return `callbacks ${hash % callbackGroups} of ${tenant}`;
}

interface Target {
  url: string;
  secrets: readonly string[];
}

/** Where a delivery goes by the current configuration, or why it cannot be sent. */
export function targetOf(
  config: WebhookConfig,
  { tenant, receiver, callbackUrl }: Pick<DeliveryRow, "tenant" | "receiver" | "callbackUrl">,
): Target | { refusal: string } {
  if (callbackUrl !== null) {
    const { hosts, secrets } = config.webhook_callbacks ?? { hosts: [], secrets: [] };
    return isAllowedCallback(callbackUrl, hosts)
      ? { url: callbackUrl, secrets }
      : {
          refusal: `${new URL(callbackUrl).origin} is no longer one of the hosts of webhook_callbacks`,
        };
  }
  const endpoint = Object.hasOwn(config.webhook_endpoints, receiver)
    ? config.webhook_endpoints[receiver]
    : undefined;
  if (!endpoint) return { refusal: `webhook_endpoints has no ${receiver} any more` };
  return isFor(tenant, endpoint)
    ? endpoint
    : { refusal: `${receiver} of webhook_endpoints gets no events of tenant ${tenant} any more` };
}

/**
 * A notifier that also wakes the sender of webhooks: every end of an execution is notified. Without
 * receivers nothing is woken.
 */
export function wakingSender(notifier: Notifier, config: Config, wake: () => void): Notifier {
  if (!hasReceivers(config)) return notifier;
  return {
    ...notifier,
    notify(topic, delayMs, news) {
      if (topic === "webhook" || topic.startsWith("execution:")) wake();
      return topic !== "webhook" && notifier.notify(topic, delayMs, news);
    },
  };
}
