import type { InStatement, ResultSet } from "@libsql/client/web";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import {
  type Notifier,
  type Subscription,
  type Topic,
  type Wants,
  type Woken,
  type Work,
  works,
} from "../deps.ts";
import type { Database } from "../store/database.ts";

/** Wakes one subscription at a time. A subscription that cannot use the wake-up passes it on. */
interface SingleWake {
  work: Work;
  /** Undefined: nobody knows. */
  jobType: string | undefined;
  notified: Set<Waiter>;
  passOn: () => void;
}
type Wake = (single?: SingleWake, news?: unknown) => void;
interface Waiter {
  wake: Wake;
  /** Undefined: everything. */
  wants: Wants | undefined;
  /** Single wake-ups that it has not yet used or passed on. */
  given: (work: Work) => number;
}

/** Delivers wake-ups within one process or isolate. */
export function memoryNotifier(): Notifier {
  const waking = new Map<Topic, Set<Waiter>>();
  /** How many subscriptions to "job" there have been. */
  let begun = 0;

  /** Wakes a subscription that wants the work: the first that has nothing to do, or else the first. */
  const send = (single: SingleWake): boolean => {
    const { work } = single;
    let chosen: Waiter | undefined;
    for (const waiter of waking.get(work) ?? []) {
      const { wants } = waiter;
      if (single.notified.has(waiter) || !mayWant(wants, single)) continue;
      const isFree = !wants || waiter.given(work) < wants[work].atOnce;
      if (isFree || !chosen) chosen = waiter;
      if (isFree) break;
    }
    if (!chosen) return false;
    single.notified.add(chosen);
    chosen.wake(single);
    return true;
  };
  const sendWork = (work: Work, jobType?: string): boolean => {
    const single: SingleWake = {
      work,
      jobType,
      notified: new Set(),
      passOn: () => void send(single),
    };
    return send(single);
  };
  /** Nobody knows of which type the work is that may start: one subscription is woken for each type that any wants. */
  const sendAll = (work: Work): boolean => {
    const types = new Set<string>();
    for (const { wants } of waking.get(work) ?? [])
      for (const jobType of wants?.[work].jobTypes ?? []) types.add(jobType);
    if (types.size === 0) return sendWork(work);
    return [...types].map((jobType) => sendWork(work, jobType)).some(Boolean);
  };

  return {
    notify(topic, delayMs = 0, news) {
      if (delayMs > 0) {
        setTimeout(() => this.notify(topic, 0, news), delayMs);
        return false;
      }
      if (isWork(topic)) return typeof news === "string" ? sendWork(topic, news) : sendAll(topic);
      const waiters = waking.get(topic);
      for (const { wake } of waiters ?? []) wake(undefined, news);
      return waiters !== undefined;
    },
    announce(jobType) {
      const before = begun;
      const hasWoken = this.notify("job", 0, jobType);
      return () => void ((!hasWoken || begun !== before) && this.notify("job", 0, jobType));
    },
    subscribe(topics) {
      if (topics.includes("job")) begun += 1;
      const { waiter, subscription } = newSubscription(() => {
        for (const topic of topics) {
          const waiters = waking.get(topic);
          waiters?.delete(waiter);
          if (waiters?.size === 0) waking.delete(topic);
        }
      });
      for (const topic of topics) {
        const waiters = waking.get(topic) ?? new Set();
        waking.set(topic, waiters.add(waiter));
      }
      return subscription;
    },
  };
}

const isWork = (topic: Topic): topic is Work => (works as readonly Topic[]).includes(topic);

const mayWant = (wants: Wants | undefined, { work, jobType }: SingleWake): boolean =>
  wants === undefined || jobType === undefined || wants[work].jobTypes.has(jobType);

/** A subscription, and what notifies it. */
export function newSubscription(close: () => void): {
  waiter: Waiter;
  subscription: Subscription;
} {
  let notified = false;
  let resolveNext: (() => void) | undefined;
  /** Single wake-ups since the last `next`, and those that `next` has returned and that are not settled. */
  let pending: SingleWake[] = [];
  let current: SingleWake[] = [];
  let news: unknown;

  const wake = (single?: SingleWake, its?: unknown): void => {
    if (single) pending.push(single);
    news = its ?? news;
    notified = true;
    resolveNext?.();
  };
  const next = async (timeoutMs: number, signal: AbortSignal): Promise<Woken> => {
    if (!notified && !signal.aborted) {
      const onAbort = (): void => wake();
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        resolveNext = () => {
          clearTimeout(timer);
          resolve();
        };
        signal.addEventListener("abort", onAbort, { once: true });
      });
      signal.removeEventListener("abort", onAbort);
      resolveNext = undefined;
    }
    const isWoken = notified || signal.aborted;
    notified = false;
    const given = pending.splice(0);
    current.push(...given);
    const told = news;
    news = undefined;
    return { isWoken, forJob: given.some(({ work }) => work === "job"), news: told };
  };
  const waiter: Waiter = {
    wake,
    wants: undefined,
    given: (work) => [...pending, ...current].filter((single) => single.work === work).length,
  };
  return {
    waiter,
    subscription: {
      wants(wants) {
        waiter.wants = wants;
        // It began to wait before anybody knew what it wants, or it wants something else now.
        const others = pending.filter((single) => !mayWant(wants, single));
        pending = pending.filter((single) => mayWant(wants, single));
        for (const { passOn } of others) passOn();
      },
      next,
      settle(settled, isMore) {
        const ended = current.filter(({ work }) => work === settled);
        current = current.filter(({ work }) => work !== settled);
        if (isMore) for (const { passOn } of ended) passOn();
      },
      close() {
        close();
        for (const { passOn } of [...current.splice(0), ...pending.splice(0)]) passOn();
      },
    },
  };
}

/** Longest delay of a wake-up from another process while something is under way here, besides the time of the query. */
const lookEveryMs = 100;
/** After news for the agents of this process, more is expected for this long. */
const alertMs = 10_000;
/** Most agents that are woken at once for new jobs. */
const mostJobs = 16;

/**
 * Delivers wake-ups of this process at once. Wake-ups of other processes are found in the shared database, by one small
 * query every `lookEveryMs` while a client waits here or agents have just had news, else whenever `look` is called.
 * Nothing is queried while nobody waits here.
 */
export function pollingNotifier(
  read: (awaited: Awaited) => Promise<Changes>,
  log: Logger,
): Notifier & { look: () => Promise<void> } {
  const local = memoryNotifier();
  const waiting = new Map<Topic, number>();
  let isTicking = false;
  let isLooking = false;
  let isOut = false;
  let alertUntil = 0;
  let seen: Changes | undefined;

  const wake = (changes: Changes): void => {
    // The last state is older than every present subscription, so no change is missed.
    const before = seen;
    seen = changes;
    const wakeAgent = (topic: Topic): void => {
      if (before) alertUntil = performance.now() + alertMs;
      local.notify(topic);
    };
    if (changes.job !== null && changes.job !== before?.job) {
      const jobs = changes.submitted - (before?.submitted ?? 0);
      for (let i = 0; i < Math.max(1, Math.min(jobs, mostJobs)); i++) wakeAgent("job");
    }
    if (changes.session !== null && changes.session !== before?.session) wakeAgent("session");
    for (const [seq, queued] of changes.builds) {
      if (queued !== null && queued !== before?.builds.get(seq)) wakeAgent("build");
    }
    // A build that has ended may have made an image.
    for (const seq of before?.builds.keys() ?? []) {
      if (!changes.builds.has(seq)) wakeAgent("queue");
    }
    for (const what of ["cancelled", "followed"] as const) {
      for (const [agent, leases] of changes[what]) {
        if (leases > (before?.[what].get(agent) ?? 0)) wakeAgent(`agent:${agent}`);
      }
    }
    // The end of a job may let its agent start a waiting job of a tenant that now has less than its share.
    for (const [agent, leases] of before?.running ?? []) {
      const isFreer = leases > (changes.running.get(agent) ?? 0);
      if (isFreer && changes.job !== null) wakeAgent(`agent:${agent}`);
    }
    // An agent whose last session has ended is in the earlier state only.
    for (const agent of new Set([...changes.held.keys(), ...(before?.held.keys() ?? [])])) {
      if (changes.held.get(agent) !== before?.held.get(agent)) wakeAgent(`agent:${agent}`);
    }
    for (const [id, mark] of changes.sessions) {
      if (mark !== before?.sessions.get(id)) local.notify(`session:${id}`);
    }
    for (const [id, mark] of changes.outputs) {
      if (mark !== before?.outputs.get(id)) local.notify(`output:${id}`);
    }
    for (const id of changes.endedExecutions) local.notify(`execution:${id}`);
    for (const id of changes.endedBuilds) local.notify(`build:${id}`);
  };

  const look = async (): Promise<void> => {
    if (isLooking || waiting.size === 0) return;
    isLooking = true;
    try {
      wake(await read(awaitedOf([...waiting.keys()])));
      isOut = false;
    } catch (error) {
      log.debug("nothing is known of other processes: {reason}", { reason: describeError(error) });
      isOut = true;
    }
    isLooking = false;
  };
  const isAlert = (): boolean =>
    performance.now() < alertUntil || [...waiting.keys()].some((topic) => !agentTopics.test(topic));
  const tick = async (): Promise<void> => {
    isTicking = true;
    for (; waiting.size > 0; await new Promise((resolve) => setTimeout(resolve, lookEveryMs))) {
      if (!isOut && isAlert()) await look();
    }
    isTicking = false;
  };

  return {
    look,
    notify: (topic, delayMs, news) => local.notify(topic, delayMs, news),
    // The writes of this process reach the server in order: see serverClient.
    announce: (jobType) => local.announce!(jobType),
    subscribe(topics) {
      for (const topic of topics) waiting.set(topic, (waiting.get(topic) ?? 0) + 1);
      if (!isTicking) void tick();
      const subscription = local.subscribe(topics);
      let isClosed = false;
      return {
        ...subscription,
        close() {
          subscription.close();
          if (isClosed) return;
          isClosed = true;
          for (const topic of topics) {
            const others = (waiting.get(topic) ?? 0) - 1;
            if (others > 0) waiting.set(topic, others);
            else waiting.delete(topic);
          }
        },
      };
    },
  };
}

/** What agents wait for, for as long as nothing is to be done. */
const agentTopics = /^((job|session|build|queue)$|agent:)/;

function awaitedOf(topics: Topic[]): Awaited {
  const ids = (kind: string): string[] =>
    topics.filter((topic) => topic.startsWith(kind)).map((topic) => topic.slice(kind.length));
  return {
    agents: ids("agent:"),
    executions: ids("execution:"),
    outputs: ids("output:"),
    builds: ids("build:"),
    sessions: ids("session:"),
  };
}

/** Ids that the subscriptions of one process wait for. */
interface Awaited {
  agents: string[];
  executions: string[];
  /** Executions whose events are followed. */
  outputs: string[];
  builds: string[];
  sessions: string[];
}

interface Changes {
  /**
   * Changes when a job was submitted or another job can be claimed, also because a tenant whose jobs wait now has room
   * below its limit, or another limit. Null if no job can be claimed.
   */
  job: string | null;
  /** Number of executions ever submitted. */
  submitted: number;
  /** Changes when another session waits. Null if none waits. */
  session: string | null;
  /** Builds that have not ended, by seq. Those that wait have their attempt, the others null. */
  builds: Map<number, number | null>;
  /** Number of leases that each agent should cancel; agents without any are left out. */
  cancelled: Map<string, number>;
  /** Number of leases of each agent that somebody follows; agents without any are left out. */
  followed: Map<string, number>;
  /** Number of leases of each agent; agents without any are left out. */
  running: Map<string, number>;
  /** A value that changes whenever the state or the output of a followed execution changes. */
  outputs: Map<string, string>;
  /** For each agent, a value that changes when a call waits for it or a session of it has ended. */
  held: Map<string, string>;
  /** A value that changes with the status of an awaited session. */
  sessions: Map<string, string>;
  /** The awaited executions and builds that have ended. */
  endedExecutions: string[];
  endedBuilds: string[];
}

/** Reads in one request what has changed for the subscriptions, no matter which process changed it. */
export async function readChanges(db: Database, awaited: Awaited, now: number): Promise<Changes> {
  const { agents, ...ofClients } = awaited;
  const lists = Object.entries(ofClients).filter(([, ids]) => ids.length > 0);
  const [marks, leases, held, ...found] = await db.client.batch(
    [
      { sql: marksSql, args: [now] },
      { sql: leasesSql, args: [now, JSON.stringify(agents)] },
      listed(heldSql, agents),
      ...lists.map(([name, ids]) => listed(listSqls[name as keyof typeof ofClients], ids)),
    ],
    "read",
  );
  const rowsOf = (name: keyof typeof ofClients): ResultSet["rows"] =>
    found[lists.findIndex(([list]) => list === name)]?.rows ?? [];
  const { head, submitted, retries, room, session, open } = marks!.rows[0]!;
  const mark = [Number(head), Number(submitted), Number(retries), room as string];
  return {
    job: head === null ? null : mark.join(),
    submitted: Number(submitted),
    session: session as string | null,
    builds: new Map(JSON.parse(open as string) as [number, number | null][]),
    cancelled: countsOf(leases!, "cancelled"),
    followed: countsOf(leases!, "followed"),
    running: countsOf(leases!, "running"),
    held: marksOf(held!.rows),
    outputs: marksOf(rowsOf("outputs")),
    sessions: marksOf(rowsOf("sessions")),
    endedExecutions: rowsOf("executions").map(({ id }) => id as string),
    endedBuilds: rowsOf("builds").map(({ id }) => id as string),
  };
}

/** Each value comes from an index over unfinished rows only, or from a single row. */
const marksSql = `SELECT
  (SELECT seq FROM executions WHERE status = 'queued' AND session_id IS NULL AND available_at <= ?
    ORDER BY job_type, rank, seq LIMIT 1) AS head,
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'executions'), 0) AS submitted,
  (SELECT coalesce(sum(n), 0) FROM counts WHERE name = 'retries') AS retries,
  (SELECT count(*) || ',' || coalesce(sum(max(0, max_running - running)), 0) FROM tenants
    WHERE max_running IS NOT NULL AND queued > 0) AS room,
  (SELECT max(seq) || ',' || sum(attempt) FROM sessions WHERE status = 'queued') AS session,
  (SELECT json_group_array(json_array(seq, iif(status = 'queued', attempt, NULL))) FROM builds
    WHERE status IN ('queued', 'running')) AS open`;

const leasesSql = `SELECT agent_id AS id, sum(cancel_requested) AS cancelled,
    sum(coalesce(followed_until, 0) > ?) AS followed, count(*) AS running
  FROM executions WHERE status = 'running' AND agent_id IN (SELECT value FROM json_each(?))
  GROUP BY agent_id`;

const heldSql = `SELECT s.agent_id AS id, count(DISTINCT s.id) || ',' || coalesce(max(c.seq), 0) AS mark
  FROM sessions s LEFT JOIN executions c ON c.session_id = s.id AND c.status = 'queued' AND c.session_id IS NOT NULL
  WHERE s.status IN ('starting', 'ready') AND s.agent_id IN (SELECT value FROM json_each(?))
  GROUP BY s.agent_id`;

const sessionsSql = `SELECT id, status || ',' || attempt AS mark FROM sessions
  WHERE id IN (SELECT value FROM json_each(?))`;

const outputsSql = `SELECT e.id, e.status || ',' || e.attempt || ',' || coalesce(
    (SELECT c.position FROM output_chunks c WHERE c.execution_id = e.id AND c.attempt = e.attempt
      ORDER BY c.position DESC LIMIT 1), -1) || ',' || coalesce(
    (SELECT max(i.number) || ',' || max(coalesce(i.answered, 0)) FROM run_items i
      WHERE i.execution_id = e.id AND i.attempt = e.attempt), 0) AS mark
  FROM executions e WHERE e.id IN (SELECT value FROM json_each(?))`;

function marksOf(rows: ResultSet["rows"]): Map<string, string> {
  return new Map(rows.map(({ id, mark }) => [id as string, mark as string]));
}

function countsOf(
  { rows }: ResultSet,
  column: "cancelled" | "followed" | "running",
): Map<string, number> {
  const counts = rows.map((row): [string, number] => [row["id"] as string, Number(row[column])]);
  return new Map(counts.filter(([, n]) => n > 0));
}

const endedSql = (table: "executions" | "builds"): string =>
  `SELECT id FROM ${table} WHERE ended_at IS NOT NULL AND id IN (SELECT value FROM json_each(?))`;

const listSqls: Record<Exclude<keyof Awaited, "agents">, string> = {
  executions: endedSql("executions"),
  outputs: outputsSql,
  builds: endedSql("builds"),
  sessions: sessionsSql,
};

function listed(sql: string, ids: string[]): InStatement {
  return { sql, args: [JSON.stringify(ids)] };
}

/**
 * Returns a function that asks for a call of `work`. The call is made at once, or `restMs` after the last
 * one, whichever is later. Requests that come in between share one call.
 */
export function paced(work: () => void, restMs: number): () => void {
  let isResting = false;
  let isAsked = false;
  return function ask() {
    isAsked = isResting;
    if (isResting) return;
    isResting = true;
    work();
    setTimeout(() => {
      isResting = false;
      if (isAsked) ask();
    }, restMs);
  };
}
