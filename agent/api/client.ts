import { createReadStream } from "node:fs";
import { setTimeout } from "node:timers/promises";
import pRetry from "p-retry";
import { z } from "zod";
import {
  type AgentStatus,
  artifactHeaders,
  type BuildLogChunk,
  type BuildReport,
  type LeaveRequest,
  PollReply,
  type PollRequest,
  type ReleaseReport,
  RenewReply,
  ResultReply,
  type ResultReport,
  type StartedReport,
  takeHeader,
  WatchReply,
} from "../../shared/wire/agent/lease.ts";
import { AnswersReply, type ItemsReport } from "../../shared/wire/agent/items.ts";
import type { SessionEnded, SessionReady } from "../../shared/wire/agent/session.ts";
import { ImageSource } from "../../shared/wire/agent/image.ts";
import type { OutputReport } from "../../shared/wire/output.ts";
import { ApiError } from "./errors.ts";
import { type ApiAccess, createHttp } from "./http.ts";
import { openResumed } from "./resumed.ts";
import type { SpooledArtifact } from "../sandbox/report.ts";

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
      const body = createReadStream(file.path);
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

    started: (leaseId: string, message: StartedReport, signal: AbortSignal) =>
      ask(`/leases/${leaseId}/started`, message, WatchReply, signal),
    logs: (leaseId: string, message: OutputReport, signal: AbortSignal) =>
      ask(`/leases/${leaseId}/logs`, message, WatchReply, signal),
    items: (leaseId: string, message: ItemsReport, signal: AbortSignal) =>
      ask(`/leases/${leaseId}/items`, message, WatchReply, signal),
    /** Waits for answers to tool calls; the agent has the first `after` of them. */
    answers: (leaseId: string, after: number, waitS: number, signal: AbortSignal) => {
      const path = `/leases/${leaseId}/answers?after=${after}&wait_s=${waitS}`;
      const timeoutMs = waitS * 1000 + POLL_SLACK_MS;
      const call = { method: "GET", path, headers: {}, body: "", reply: AnswersReply } as const;
      return repeat(() => http.send({ ...call, timeoutMs, signal }), signal);
    },
    /** Returns the answer; if `takes`, it may bring the next job. */
    result: (leaseId: string, message: ResultReport, takes: boolean, signal: AbortSignal) => {
      const path = `/leases/${leaseId}/result`;
      const headers = takes ? { [takeHeader]: "1" } : {};
      return repeat(() => post(path, message, ResultReply, TIMEOUT_MS, signal, headers), signal);
    },
    release: (leaseId: string, message: ReleaseReport, signal: AbortSignal) =>
      report(`/leases/${leaseId}/release`, message, signal),

    sessionReady: (leaseId: string, message: SessionReady, signal: AbortSignal) =>
      report(`/sessions/${leaseId}/ready`, message, signal),
    sessionEnded: (leaseId: string, message: SessionEnded, signal: AbortSignal) =>
      report(`/sessions/${leaseId}/ended`, message, signal),
    sessionRelease: (leaseId: string, message: ReleaseReport, signal: AbortSignal) =>
      report(`/sessions/${leaseId}/release`, message, signal),

    buildLogs: (leaseId: string, message: BuildLogChunk, signal: AbortSignal) =>
      report(`/builds/${leaseId}/logs`, message, signal),
    buildResult: (leaseId: string, message: BuildReport, signal: AbortSignal) =>
      report(`/builds/${leaseId}/result`, message, signal),
    buildRelease: (leaseId: string, message: ReleaseReport, signal: AbortSignal) =>
      report(`/builds/${leaseId}/release`, message, signal),

    /** Streams a spooled artifact; each retry starts at its first byte. */
    upload: (leaseId: string, artifact: SpooledArtifact, signal: AbortSignal) => {
      const path = `/leases/${leaseId}/artifacts/${encodeURIComponent(artifact.name)}`;
      return put(path, artifact, TIMEOUT_MS, signal);
    },

    /** Streams the archive of a built image, with the same retries. */
    buildImage: (leaseId: string, archive: Omit<SpooledArtifact, "name">, signal: AbortSignal) =>
      put(`/builds/${leaseId}/image`, archive, IMAGE_TIMEOUT_MS, signal),
    imageSource: (image: string, signal: AbortSignal) =>
      http.send({
        method: "GET",
        path: `/images/${image}`,
        headers: {},
        body: "",
        reply: ImageSource,
        timeoutMs: TIMEOUT_MS,
        signal,
      }),
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
