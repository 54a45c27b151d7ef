import type { Logger } from "@logtape/logtape";
import { describeError } from "../../../shared/log-line.ts";
import type { Notifier, Topic } from "../../deps.ts";
import type { Awaited, Changes } from "../../store/changes.ts";
import { memoryNotifier } from "./notifier-memory.ts";

/** Longest delay of a wake-up from another process, besides the time of the query. */
const lookEveryMs = 100;
/** Pause between queries while the database does not answer. */
const outageMs = 1000;
/** Most agents that are woken at once for new jobs. */
const mostJobs = 16;

/**
 * Delivers wake-ups of this process at once. Wake-ups of other processes are found in the shared
 * database, by one small query every `lookEveryMs`. Nothing is queried while nobody waits here.
 */
export function pollingNotifier(
  look: (awaited: Awaited) => Promise<Changes>,
  log: Logger,
): Notifier {
  const local = memoryNotifier();
  const waiting = new Map<Topic, number>();
  let isLooking = false;
  let seen: Changes | undefined;

  const wake = (changes: Changes): void => {
    // The last state is older than every present subscription, so no change is missed.
    const before = seen;
    seen = changes;
    if (changes.job !== null && changes.job !== before?.job) {
      const jobs = changes.submitted - (before?.submitted ?? 0);
      for (let i = 0; i < Math.max(1, Math.min(jobs, mostJobs)); i++) local.notify("job");
    }
    if (changes.build !== before?.build) local.notify("queue");
    for (const [agent, leases] of changes.cancelled) {
      if (leases > (before?.cancelled.get(agent) ?? 0)) local.notify(`agent:${agent}`);
    }
    for (const [agent, leases] of changes.followed) {
      if (leases > (before?.followed.get(agent) ?? 0)) local.notify(`agent:${agent}`);
    }
    // The end of a job may let its agent start a waiting job of a tenant that now has less than its share.
    for (const [agent, leases] of before?.running ?? []) {
      const isFreer = leases > (changes.running.get(agent) ?? 0);
      if (isFreer && changes.job !== null) local.notify(`agent:${agent}`);
    }
    // An agent whose last session has ended is in the earlier state only.
    for (const agent of new Set([...changes.held.keys(), ...(before?.held.keys() ?? [])])) {
      if (changes.held.get(agent) !== before?.held.get(agent)) local.notify(`agent:${agent}`);
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

  const lookAround = async (): Promise<void> => {
    let pauseMs = lookEveryMs;
    try {
      wake(await look(awaitedOf([...waiting.keys()])));
    } catch (error) {
      log.debug("nothing is known of other processes: {reason}", { reason: describeError(error) });
      pauseMs = outageMs;
    }
    setTimeout(lookAgain, pauseMs);
  };
  const lookAgain = (): void => {
    isLooking = waiting.size > 0;
    if (isLooking) void lookAround();
  };

  return {
    notify: (topic, delayMs) => local.notify(topic, delayMs),
    subscribe(topics) {
      for (const topic of topics) waiting.set(topic, (waiting.get(topic) ?? 0) + 1);
      if (!isLooking) lookAgain();
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
