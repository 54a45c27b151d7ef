import { createReadStream } from "node:fs";
import { PassThrough, pipeline, type Readable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import pRetry from "p-retry";
import { z } from "zod";
import { freed, partBytes } from "../../shared/process/parts.node.ts";
import type { OutputReport } from "../../shared/wire/executions.ts";
import { ImageSource } from "../../shared/wire/job-types.ts";
import {
  type AgentStatus,
  AnswersReply,
  artifactHeaders,
  type BuildLogChunk,
  type BuildReport,
  type ItemsReport,
  type LeaveRequest,
  PollReply,
  type PollRequest,
  type ReleaseReport,
  RenewReply,
  ResultReply,
  type ResultReport,
  type SessionEnded,
  type SessionReady,
  type StartedReport,
  takeHeader,
  WatchReply,
} from "../../shared/wire/leases.ts";
import type { SpooledArtifact } from "../sandbox/verdict.ts";
import { type ApiAccess, ApiError, createHttp, type Http } from "./http.ts";

/**
 * The API as an agent sees it. Posts about a lease are idempotent: they are repeated with the same
 * body after a transient failure. Other calls are made once.
 *
 * Every call throws ApiError, or the signal's reason once the signal is aborted.
 */
export type Client = ReturnType<typeof createClient>;

export type RetryTimes = {
  readonly retries: number;
  readonly minTimeout: number;
  readonly maxTimeout: number;
};

/**
 * Posts are repeated until the lease ends and aborts their signal: if the API is back before that,
 * it gets the result.
 */
export const retryTimes: RetryTimes = { retries: Infinity, minTimeout: 200, maxTimeout: 5000 };
/** After this many retries a download fails; it is started again later. */
const DOWNLOAD_RETRIES = 10;

const TIMEOUT_MS = 30_000;
/** A store needs a long time to write a large file. */
const IMAGE_TIMEOUT_MS = 5 * 60_000;
/** How much longer than the requested wait an answer to a poll may take. */
const POLL_SLACK_MS = 10_000;

const taken = z.object({});

type Post<Message, Reply> = (
  leaseId: string,
  message: Message,
  signal: AbortSignal,
) => Promise<Reply>;

export function createClient(api: ApiAccess, times: RetryTimes = retryTimes) {
  const http = createHttp(api);

  async function post<T>(
    path: string,
    message: object,
    reply: z.ZodType<T>,
    timeoutMs: number,
    signal: AbortSignal,
    more: Record<string, string> = {},
  ): Promise<T> {
    const headers = { "content-type": "application/json", ...more };
    const body = JSON.stringify(message);
    return http.send({ method: "POST", path, headers, body, reply, timeoutMs, signal });
  }

  async function repeat<T>(
    send: () => Promise<T>,
    signal: AbortSignal,
    retries = times.retries,
  ): Promise<T> {
    return pRetry(send, {
      ...times,
      retries,
      randomize: true,
      signal,
      shouldRetry: ({ error }) => error instanceof ApiError && error.kind === "transient",
      onFailedAttempt: async ({ error, retriesLeft }) => {
        const waitMs = error instanceof ApiError && retriesLeft > 0 ? error.retryAfterMs : 0;
        if (waitMs > 0) await setTimeout(waitMs, undefined, { signal });
      },
    });
  }

  const ask = <T>(path: string, message: object, reply: z.ZodType<T>, signal: AbortSignal) =>
    repeat(() => post(path, message, reply, TIMEOUT_MS, signal), signal);

  async function report(path: string, message: object, signal: AbortSignal): Promise<void> {
    await ask(path, message, taken, signal);
  }

  /** Posts a message about a lease. */
  const reporting =
    <Message extends object>(place: string, what: string): Post<Message, void> =>
    (leaseId, message, signal) =>
      report(`/${place}/${leaseId}/${what}`, message, signal);

  /** The same for a job; the reply tells whether somebody follows it. */
  const watched =
    <Message extends object>(what: string): Post<Message, WatchReply> =>
    (leaseId, message, signal) =>
      ask(`/leases/${leaseId}/${what}`, message, WatchReply, signal);

  const get = <T>(path: string, reply: z.ZodType<T>, timeoutMs: number, signal: AbortSignal) =>
    http.send({ method: "GET", path, headers: {}, body: "", reply, timeoutMs, signal });

  async function put(
    path: string,
    file: Pick<SpooledArtifact, "path" | "sizeBytes" | "sha256">,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    const headers = {
      "content-type": "application/octet-stream",
      [artifactHeaders.size]: String(file.sizeBytes),
      [artifactHeaders.sha256]: file.sha256,
    };
    await repeat(async () => {
      const body = freed(createReadStream(file.path, { highWaterMark: partBytes }));
      try {
        const call = { method: "PUT", path, headers, body, reply: taken } as const;
        await http.send({ ...call, timeoutMs, signal });
      } finally {
        body.destroy();
      }
    }, signal);
  }

  return {
    poll: (message: PollRequest, signal: AbortSignal) =>
      post("/poll", message, PollReply, message.wait_s * 1000 + POLL_SLACK_MS, signal),
    renew: (message: AgentStatus, timeoutMs: number, signal: AbortSignal) =>
      post("/renew", message, RenewReply, timeoutMs, signal),
    leave: (message: LeaveRequest, signal: AbortSignal) =>
      post("/leave", message, taken, TIMEOUT_MS, signal),
    /** Repeated like a post about a lease. */
    reportCrash: (agentId: string, signal: AbortSignal) =>
      report("/leave", { agent_id: agentId, crashed: true } satisfies LeaveRequest, signal),

    started: watched<StartedReport>("started"),
    logs: watched<OutputReport>("logs"),
    items: watched<ItemsReport>("items"),
    /** Waits for answers to tool calls; the agent has the first `after` of them. */
    answers: (leaseId: string, after: number, waitS: number, signal: AbortSignal) => {
      const path = `/leases/${leaseId}/answers?after=${after}&wait_s=${waitS}`;
      const timeoutMs = waitS * 1000 + POLL_SLACK_MS;
      return repeat(() => get(path, AnswersReply, timeoutMs, signal), signal);
    },
    /** Returns the answer; if `takes`, it may bring the next job. */
    result: (leaseId: string, message: ResultReport, takes: boolean, signal: AbortSignal) => {
      const path = `/leases/${leaseId}/result`;
      const headers = takes ? { [takeHeader]: "1" } : {};
      return repeat(() => post(path, message, ResultReply, TIMEOUT_MS, signal, headers), signal);
    },
    release: reporting<ReleaseReport>("leases", "release"),

    sessionReady: reporting<SessionReady>("sessions", "ready"),
    sessionEnded: reporting<SessionEnded>("sessions", "ended"),
    sessionRelease: reporting<ReleaseReport>("sessions", "release"),

    buildLogs: reporting<BuildLogChunk>("builds", "logs"),
    buildResult: reporting<BuildReport>("builds", "result"),
    buildRelease: reporting<ReleaseReport>("builds", "release"),

    /** Streams a spooled artifact; each retry starts at its first byte. */
    upload: (leaseId: string, artifact: SpooledArtifact, signal: AbortSignal) => {
      const path = `/leases/${leaseId}/artifacts/${encodeURIComponent(artifact.name)}`;
      return put(path, artifact, TIMEOUT_MS, signal);
    },

    /** Streams the archive of a built image, with the same retries. */
    buildImage: (leaseId: string, archive: Omit<SpooledArtifact, "name">, signal: AbortSignal) =>
      put(`/builds/${leaseId}/image`, archive, IMAGE_TIMEOUT_MS, signal),
    imageSource: (image: string, signal: AbortSignal) =>
      get(`/images/${image}`, ImageSource, TIMEOUT_MS, signal),
    /**
     * Streams the archive of an image. If the connection breaks or is silent for 30 s, it resumes
     * at that byte.
     */
    imageArchive: (image: string, signal: AbortSignal) => {
      const path = `/images/${image}/archive`;
      const ask = (headers: Record<string, string>, until: AbortSignal) =>
        http.open(path, headers, TIMEOUT_MS, until);
      const askAgain: typeof ask = (headers, until) =>
        repeat(() => ask(headers, until), until, DOWNLOAD_RETRIES);
      return openResumed(ask, askAgain, signal);
    },

    /** Streams an input file of a leased job, with the same retries; it resumes like an archive. */
    inputFile: (leaseId: string, sha256: string, signal: AbortSignal) => {
      const ask = (headers: Record<string, string>, until: AbortSignal) =>
        repeat(
          () => http.open(`/leases/${leaseId}/files/${sha256}`, headers, TIMEOUT_MS, until),
          until,
          DOWNLOAD_RETRIES,
        );
      return openResumed(ask, ask, signal);
    },

    close: http.close,
  };
}

/** After this many connections in a row that brought no byte, the download fails. */
const MAX_EMPTY = 3;

type Answer = Awaited<ReturnType<Http["open"]>>;
type Ask = (headers: Record<string, string>, signal: AbortSignal) => Promise<Answer>;

/**
 * Opens a download that resumes at the same byte if the connection breaks.
 *
 * @param ask Requests the whole body.
 * @param askAgain Requests the rest; retries while the API is unreachable.
 * @throws what `ask` throws. If it cannot resume, the body fails with the error that broke the
 *   connection, or with what `askAgain` throws.
 */
async function openResumed(ask: Ask, askAgain: Ask, signal: AbortSignal): Promise<Readable> {
  const closed = new AbortController();
  const until = AbortSignal.any([signal, closed.signal]);
  const { body, headers } = await ask({}, until);

  async function rest(offset: number): Promise<Readable | null> {
    const { etag } = headers;
    if (typeof etag !== "string") return null;
    const part = await askAgain({ range: `bytes=${offset}-`, "if-range": etag }, until);
    if (part.statusCode === 206) return part.body;
    part.body.destroy();
    return null;
  }

  const whole = freed(new PassThrough());
  whole.once("close", () => closed.abort()).on("error", () => {});
  pipeline(resume(body, rest, until), whole, () => {});
  return whole;
}

async function* resume(
  first: Readable,
  rest: (offset: number) => Promise<Readable | null>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  let offset = 0;
  let empty = 0;
  for (let body = first; ;) {
    try {
      for await (const piece of body as AsyncIterable<Buffer>) {
        offset += piece.length;
        empty = 0;
        yield piece;
      }
      return;
    } catch (error) {
      signal.throwIfAborted();
      empty += 1;
      const next = empty < MAX_EMPTY ? await rest(offset) : null;
      if (next === null) throw error;
      body = next;
    }
  }
}
