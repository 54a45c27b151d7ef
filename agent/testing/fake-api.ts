import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { listen } from "../../shared/testing/http.ts";
import {
  type Intervals,
  type LeasedBuild,
  type LeasedJob,
  type LeasedSession,
  type PollReply,
  type PollRequest,
  protocolHeader,
  protocolVersion,
  type ReadyKind,
} from "../../shared/wire/leases.ts";

/** One request as it came in; `path` without /agent/v1. */
export type Received = {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly bytes: Buffer;
  readonly json: Record<string, unknown>;
  readonly isHungUp: () => boolean;
  /** Resolves when the agent hangs up before the answer. */
  readonly hungUp: Promise<void>;
};

export type Answer =
  | {
      readonly status: number;
      readonly body?: unknown;
      readonly headers?: Record<string, string>;
      /** The answer comes from a proxy: it lacks the header of the protocol. */
      readonly isProxy?: boolean;
    }
  /** There is no answer. */
  | "silence"
  /** The connection is cut. */
  | "cut";

export type FakeApi = Awaited<ReturnType<typeof startFakeApi>>;

const PREFIX = "/agent/v1";

/**
 * The API's side of the agent protocol over real HTTP; it records every request and answers as the
 * test says.
 */
export async function startFakeApi() {
  const received: Received[] = [];
  const jobs = createDelivery<LeasedJob>();
  const builds = createDelivery<LeasedBuild>();
  const sessions = createDelivery<LeasedSession>();
  const calls = createDelivery<LeasedJob>();
  const answers: { pathEnd: string; answer: Answer }[] = [];
  const watchers = new Set<() => void>();
  const pendingPolls = new Set<() => void>();

  const server = createServer((request, response) => {
    void handle(request, response).catch(() => response.destroy());
  });
  const { url, hangUp, [Symbol.asyncDispose]: close } = await listen(server);

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? "").slice(PREFIX.length);
    const hangUp = Promise.withResolvers<void>();
    let isHungUp = false;
    response.once("close", () => {
      isHungUp = !response.writableFinished;
      if (isHungUp) hangUp.resolve();
    });
    const bytes = await buffer(request);
    const { method = "", headers } = request;
    const isJson = headers["content-type"] === "application/json";
    const json = isJson ? (JSON.parse(bytes.toString()) as Received["json"]) : {};
    const hungUp = hangUp.promise;
    const item = { method, path, headers, bytes, json, hungUp, isHungUp: () => isHungUp };
    received.push(item);
    const [, lease = ""] = /^\/(?:leases|builds|sessions)\/([^/]+)\//.exec(path) ?? [];
    for (const each of [jobs, builds, sessions, calls]) each.confirm([lease]);
    watchers.forEach((look) => look());

    const at = answers.findIndex(({ pathEnd }) => path.endsWith(pathEnd));
    const answer = at < 0 ? { status: 200 } : answers.splice(at, 1)[0]!.answer;
    if (answer === "silence") return;
    if (answer === "cut") response.destroy();
    else if (at < 0 && path === "/poll") await answerPoll(item, response);
    else if (at < 0 && path === "/renew") send(response, { status: 200, body: news() });
    else send(response, answer);
  }

  async function answerPoll(
    { json, hungUp, isHungUp }: Received,
    response: ServerResponse,
  ): Promise<void> {
    const {
      free_slots,
      free_builds,
      free_sessions = 0,
      wait_s,
      is_new,
      ...held
    } = json as PollRequest;
    for (const each of [jobs, calls]) each.confirm(held.leases);
    builds.confirm(held.builds);
    sessions.confirm(held.sessions ?? []);
    for (const each of [jobs, builds, sessions, calls]) each.repeat();
    const reply = (): PollReply => ({
      ...news(),
      jobs: [...calls.give(Infinity), ...jobs.give(free_slots)],
      builds: builds.give(free_builds),
      sessions: sessions.give(free_sessions),
      keep_ready: is_new ? api.keepReady : [],
    });
    const hasNews = (): boolean =>
      [api.lost, api.cancel].some(({ length }) => length > 0) ||
      (free_slots > 0 && jobs.hasAny()) ||
      (free_builds > 0 && builds.hasAny()) ||
      (free_sessions > 0 && sessions.hasAny()) ||
      calls.hasAny();
    if (wait_s > 0 && !hasNews()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      pendingPolls.add(resolve);
      const limit = setTimeout(resolve, wait_s * 1000);
      await Promise.race([promise, hungUp]);
      clearTimeout(limit);
      pendingPolls.delete(resolve);
    }
    if (!isHungUp()) send(response, { status: 200, body: reply() });
  }

  const news = () => ({
    cancel: api.cancel.splice(0),
    lost: api.lost.splice(0),
    images_wanted: api.imagesWanted,
    intervals: api.intervals,
  });

  const matching = (pathEnd: string): Received[] =>
    received.filter(({ path }) => path.endsWith(pathEnd));

  /** The n-th request (from 1) to a path with this ending, as soon as it is there. */
  async function request(pathEnd: string, n = 1): Promise<Received> {
    const { promise, resolve } = Promise.withResolvers<Received>();
    const look = (): void => {
      const found = matching(pathEnd)[n - 1];
      if (found) resolve(found);
    };
    watchers.add(look);
    look();
    return promise.finally(() => watchers.delete(look));
  }

  /** Answers pending polls now. */
  const wake = (): void => pendingPolls.forEach((resolve) => resolve());
  /** Offers work to the pending or the next poll that has room for it. */
  const offering =
    <Work extends { readonly lease_id: string }>({ add }: Delivery<Work>) =>
    (...work: Work[]): void => {
      add(...work);
      wake();
    };
  const intervals: Intervals = { poll_wait_s: 25, lease_ttl_s: 30, renew_every_s: 8 };
  const api = {
    url,
    received,
    intervals,
    imagesWanted: [] as string[],
    /** What a new agent is told to keep containers ready for. */
    keepReady: [] as ReadyKind[],
    /** Leases that replies call lost. */
    lost: [] as string[],
    /** Leases that replies want cancelled. */
    cancel: [] as string[],
    offer: offering(jobs),
    offerBuild: offering(builds),
    offerSession: offering(sessions),
    offerCall: offering(calls),
    wake,
    /** Cuts all connections. */
    cut: hangUp,
    /** Answers the next requests to paths with this ending, one answer each. */
    answer: (pathEnd: string, ...more: Answer[]): void => {
      answers.push(...more.map((answer) => ({ pathEnd, answer })));
    },
    request,
    count: (pathEnd: string) => matching(pathEnd).length,
    [Symbol.asyncDispose]: close,
  };
  return api;
}

type Delivery<Work extends { readonly lease_id: string }> = ReturnType<typeof createDelivery<Work>>;

/**
 * Work for an agent. What it was given is given again until it has mentioned the lease: the answer
 * may have come too late, or crossed the end of its request.
 */
function createDelivery<Work extends { readonly lease_id: string }>() {
  const waiting: Work[] = [];
  const given = new Map<string, Work>();
  return {
    add: (...work: Work[]) => void waiting.push(...work),
    hasAny: () => waiting.length > 0,
    give(count: number): Work[] {
      const work = waiting.splice(0, count);
      for (const one of work) given.set(one.lease_id, one);
      return work;
    },
    confirm: (leaseIds: readonly string[]) => leaseIds.forEach((id) => given.delete(id)),
    repeat() {
      waiting.unshift(...given.values());
      given.clear();
    },
  };
}

function send(
  response: ServerResponse,
  { status, body = defaultBody(status), headers, isProxy = false }: Exclude<Answer, string>,
): void {
  const protocol = isProxy ? {} : { [protocolHeader]: protocolVersion };
  response.writeHead(status, { "content-type": "application/json", ...protocol, ...headers });
  response.end(JSON.stringify(body));
}

function defaultBody(status: number): object {
  if (status < 400) return { jobs: [] };
  return { title: "no", status, detail: "refused by the test", correlation_id: "c" };
}
