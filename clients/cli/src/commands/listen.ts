import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import {
  type Airlock,
  ConnectionError,
  ProblemError,
  type WebhookEventPage,
} from "../../../typescript/src/index.ts";
import { exitCode, UsageError } from "../exit.ts";
import { type Called, forward, parseReceiver, parseSecret } from "../forward.ts";
import { interruptible } from "../interrupt.ts";
import type { Terminal } from "../terminal.ts";
import { addCommand, does, oneOf, type Tool } from "../tool.ts";
import { collect, duration } from "../words.ts";

interface ListenOptions {
  forwardTo: string;
  secret?: string;
  event?: string[];
}

type Message = WebhookEventPage["items"][number];

const endings = ["succeeded", "failed", "timeout", "oom", "cancelled"];

/** Most calls that are open at the same time. */
const atOnce = 4;

export function addListen(program: Command): void {
  addCommand(program, "listen", "call a webhook receiver on this machine when jobs end")
    .requiredOption("--forward-to <url>", "the receiver, such as http://localhost:9000/hook")
    .option("--secret <whsec>", "sign with this secret; by default with a new one")
    .addOption(
      oneOf(
        "-e, --event <status>",
        "only jobs that end with this status (repeatable)",
        endings,
      ).argParser(collect),
    )
    .addHelpText(
      "after",
      `
The service stores events while a client listens. It does not have to reach this machine, and needs no configuration.
The receiver is called as a configured one would be (Standard Webhooks). A failed call is repeated after 1 s and 5 s.`,
    )
    .action(
      does(async ({ airlock, terminal }: Tool, options: ListenOptions) => {
        const receiver = parseReceiver(options.forwardTo);
        const given = options.secret ?? `whsec_${randomBytes(32).toString("base64")}`;
        const secret = parseSecret(given);
        const types = options.event?.map(typeOf);
        return interruptible(async (signal) => {
          const calls = new Set<Promise<void>>();
          try {
            const { cursor } = await airlock.api.listenForWebhookEvents({}, { signal });
            sayReady(terminal, receiver, given);
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
      }),
    );
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
