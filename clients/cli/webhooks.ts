import { createHmac, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import {
  type Airlock,
  ConnectionError,
  ProblemError,
  type WebhookDelivery,
  type WebhookEventPage,
} from "../typescript/src/index.ts";
import { exitCode, interruptible, UsageError } from "./exit.ts";
import { age, duration, parseNumber, type Terminal } from "./terminal.ts";
import { addCommand, forEach, given, numberOption, showPage, tenantColumn } from "./tool.ts";

type Message = WebhookEventPage["items"][number];

const endings = ["succeeded", "failed", "timeout", "oom", "cancelled"];

/** Most calls that are open at the same time. */
const atOnce = 4;

export function addListen(program: Command): void {
  const listen = addCommand(
    program,
    "listen",
    "call a webhook receiver on this machine when jobs end",
  )
    .option("--forward-to <url>", "the receiver, such as http://localhost:9000/hook", {
      required: true,
      read: parseReceiver,
    })
    .option("--secret <whsec>", "sign with this secret; by default with a new one")
    .option("-e, --event <status>", "only jobs that end with this status (repeatable)", {
      choices: endings,
      many: true,
      read: (texts: string[]) => texts.map(typeOf),
    });
  listen.command.addHelpText(
    "after",
    `
The service stores events while a client listens. It does not have to reach this machine, and needs no configuration.
The receiver is called as a configured one would be (Standard Webhooks). A failed call is repeated after 1 s and 5 s.`,
  );
  listen.does(async ({ airlock, terminal }, options) => {
    const { forwardTo: receiver, event: types } = options;
    const text = options.secret ?? `whsec_${randomBytes(32).toString("base64")}`;
    const secret = parseSecret(text);
    return interruptible(async (signal) => {
      const calls = new Set<Promise<void>>();
      try {
        const { cursor } = await airlock.api.listenForWebhookEvents({}, { signal });
        sayReady(terminal, receiver, text);
        for await (const message of messages(airlock, terminal, cursor, signal)) {
          if (types && !types.includes(message.event.type)) continue;
          const made = call(terminal, receiver, secret, message, signal)
            .catch(() => {})
            .finally(() => calls.delete(made));
          calls.add(made);
          if (calls.size >= atOnce) await Promise.race(calls);
        }
      } catch (error) {
        if (!signal.aborted) throw error;
      }
      await Promise.all(calls);
      if (terminal.watched) terminal.note("");
      return exitCode.interrupted;
    });
  });
}

function typeOf(given: string): string {
  const status = given.replace(/^execution\./, "");
  if (endings.includes(status)) return `execution.${status}`;
  throw new UsageError(`--event "${given}" must be one of ${endings.join(", ")}`);
}

function sayReady(terminal: Terminal, receiver: URL, secret: string): void {
  if (terminal.json) return terminal.line(JSON.stringify({ forward_to: receiver.href, secret }));
  terminal.note(`Calls ${receiver.href} when a job ends, until Ctrl-C. The calls are signed with:`);
  terminal.note(`  ${secret}`);
}

/** Events as they happen. If the service does not answer, says so once and asks every second. */
async function* messages(
  airlock: Airlock,
  terminal: Terminal,
  from: string,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  let after = from;
  let isOverAt = Infinity;
  for (let isGone = false; ;) {
    try {
      const page = await airlock.api.listenForWebhookEvents(
        { after, wait: 20 },
        { signal, retries: 0 },
      );
      // Without an event, a cursor only changes if the service's database was replaced.
      const isReplaced = page.items.length === 0 && page.cursor !== after;
      if (performance.now() > isOverAt || isReplaced)
        terminal.note("airlock: jobs that ended meanwhile may be missing");
      if (isGone) terminal.note("airlock: the service answers again");
      isGone = false;
      isOverAt = performance.now() + page.listening_s * 1000;
      yield* page.items;
      after = page.cursor;
    } catch (error) {
      signal.throwIfAborted();
      if (!isTemporary(error)) throw error;
      if (!isGone) terminal.note(`airlock: ${(error as Error).message}\nairlock: trying again …`);
      isGone = true;
      await sleep(1000, undefined, { signal });
    }
  }
}

function isTemporary(error: unknown): boolean {
  if (error instanceof ProblemError) return error.status >= 500 || error.status === 429;
  return error instanceof ConnectionError;
}

async function call(
  terminal: Terminal,
  receiver: URL,
  secret: Buffer,
  message: Message,
  signal: AbortSignal,
): Promise<void> {
  for await (const called of forward(receiver, secret, message, signal)) {
    terminal.line(terminal.json ? asJson(message, called) : asLine(terminal, message, called));
  }
}

function asJson({ webhook_id, event }: Message, called: Called): string {
  const { status, error, tookMs, againMs } = called;
  const { job_id } = event.data;
  const took_ms = Math.round(tookMs);
  const again_in_ms = againMs;
  return JSON.stringify({
    status,
    type: event.type,
    job_id,
    webhook_id,
    took_ms,
    error,
    again_in_ms,
  });
}

function asLine({ style }: Terminal, { event }: Message, called: Called): string {
  const { status, error, tookMs, againMs } = called;
  const code = style(error === null ? "green" : "red", String(status ?? "---"));
  const what = `${code}  ${event.type.padEnd(19)}  ${event.data.job_id}`;
  if (error === null) return `${what}  ${duration(tookMs)}`;
  const next = againMs === null ? "given up" : `again in ${duration(againMs)}`;
  return `${what}  ${error}; ${next}`;
}

/** The outcome of one call. */
interface Called {
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
async function* forward(
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
function parseReceiver(given: string): URL {
  const url = URL.parse(/^[a-z]+:\/\//i.test(given) ? given : `http://${given}`);
  if (url && /^https?:$/.test(url.protocol) && url.username === "") return url;
  throw new UsageError(
    `--forward-to "${given}" must be the address of a receiver, such as http://localhost:9000/hook`,
  );
}

/** The bytes of a `whsec_` secret. */
function parseSecret(given: string): Buffer {
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

const statuses = ["pending", "delivered", "failed"] satisfies WebhookDelivery["status"][];

/** Commands about calls to receivers of webhooks. */
export function addWebhooks(program: Command): void {
  const about = "calls to those who want to know how jobs end";
  const webhooks = addCommand(program, "webhooks", about).command;
  addCommand(webhooks, "deliveries|ls", "list them, the newest first")
    .option("-s, --status <status>", "with one status", { choices: statuses })
    .option("--endpoint <name>", "to one receiver")
    .option("--job <id>", "about one job")
    .option(...numberOption)
    .does(async (tool, { status, endpoint, job, number }) => {
      const filters = given({ status, endpoint, jobId: job });
      const page = await tool.airlock.api.listWebhookDeliveries({ ...filters, limit: number });
      showPage(tool, page, number, "no deliveries", {
        ID: ({ id }) => String(id),
        STATUS: (one) => one.status,
        TRIES: ({ attempts }) => String(attempts),
        AGE: ({ created_at }) => age(created_at),
        ...tenantColumn(tool),
        RECEIVER: (one) => one.endpoint ?? one.callback_url ?? "",
      });
    });
  addCommand(webhooks, "resend", "deliver again")
    .argument("<delivery...>", "their ids")
    .does(async (tool, ids) => {
      for (const id of ids) parseNumber(id, "<delivery>");
      const resend = forEach(
        ({ api }, id) => api.resendWebhookDelivery({ id: Number(id) }),
        ({ status }, id) => `${id} ${status}`,
      );
      return resend(tool, ids);
    });
}
