import { getLogger } from "@logtape/logtape";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Notifier, type Subscription, type Topic, works } from "../deps.ts";
import { advanceBuild, requestBuild } from "../images/sql.ts";
import { advance } from "../jobs/lease.ts";
import { advanceSession } from "../sessions/sql.ts";
import { setLimits } from "../tenants/sql.ts";
import { created, newCall, readySession } from "../testing/session-store.ts";
import {
  by,
  leaseJob,
  noLimits,
  openTempStore,
  storeJob,
  type TempStore,
} from "../testing/temp-store.ts";
import { memoryNotifier, paced, pollingNotifier, readChanges } from "./notifier.ts";

/** Longer than any test may take: who waits so long was not woken. */
const tooLongMs = 600_000;

describe("notifier polling", () => {
  const log = getLogger(["airlock", "test"]);
  const never = new AbortController().signal;
  const error = { type: "docker_error", message: "", phase: "startup" } as const;

  let store: TempStore;
  const looked = { times: 0 };
  let notifier: ReturnType<typeof pollingNotifier>;
  let clock: number;
  /** What a process does every second. */
  let beat: NodeJS.Timeout | undefined;
  const everyBeat = (own: typeof notifier): void => {
    beat = setInterval(() => void own.look(), 50);
  };
  beforeEach(async () => {
    store = await openTempStore();
    looked.times = 0;
    clock = 100;
    notifier = pollingNotifier((awaited) => {
      looked.times++;
      return readChanges(store.db, awaited, clock);
    }, log);
    everyBeat(notifier);
  });
  afterEach(() => {
    clearInterval(beat);
    store.close();
  });

  async function lookedTwice(wait: () => Promise<unknown>): Promise<void> {
    const enough = looked.times + 2;
    while (looked.times < enough) await wait();
  }

  /** Resolves at the next wake-up after `change`, of which no process notifies this one. */
  async function wakesAt(topics: Topic[], change: () => Promise<unknown>): Promise<boolean> {
    const subscription = notifier.subscribe(topics);
    try {
      // The first look may wake in vain.
      await lookedTwice(() => subscription.next(50, never));
      await change();
      return await isWoken(subscription);
    } finally {
      subscription.close();
    }
  }

  /** By the change, long before the wait is over. */
  async function isWoken(subscription: Subscription): Promise<boolean> {
    const beganMs = performance.now();
    await subscription.next(tooLongMs, never);
    return performance.now() - beganMs < tooLongMs - 1000;
  }

  const submit = () => storeJob(store.db);
  const claim = async () =>
    (await leaseJob(store.db, { now: clock, ttlMs: 1000 - clock, agentId: "agent" })).leaseId;

  describe("a job that its tenant's limit holds back wakes a waiting poll when, at another process,", () => {
    const limit = (max_running: number | null) =>
      setLimits(store.db, "default", { ...noLimits, max_running }, by());
    const end = (leaseId: string) =>
      advance(
        store.db,
        { leaseId },
        { kind: "complete", leaseId, status: "succeeded", error: null, exitCode: 0 },
        clock,
      );

    test.each([
      ["one of its tenant ends", end],
      ["the limit is raised", () => limit(2)],
      ["the limit is taken away", () => limit(null)],
    ])("%s", async (_what, change) => {
      await limit(1);
      for (let n = 0; n < 2; n++) await submit();
      const leaseId = await claim();
      expect(await wakesAt(["job"], () => change(leaseId))).toBe(true);
    });
  });

  test("the end of a job at another process wakes its agent while jobs wait", async () => {
    for (let n = 0; n < 2; n++) await submit();
    const leaseId = await claim();
    const ended = { kind: "complete", status: "succeeded", error: null, exitCode: 0 } as const;
    const end = () => advance(store.db, { leaseId }, { ...ended, leaseId }, clock);
    expect(await wakesAt(["agent:agent"], end)).toBe(true);
  });

  test("a job that another process queued wakes a waiting poll", async () => {
    expect(await wakesAt(["job"], submit)).toBe(true);
  });

  test("a job that is due again wakes a waiting poll", async () => {
    await submit();
    const leaseId = await claim();
    await advance(store.db, { leaseId }, { kind: "release", leaseId, error, retryAt: 500 }, clock);
    const isDue = async (): Promise<void> => void (clock = 500);
    expect(await wakesAt(["job"], isDue)).toBe(true);
  });

  test("an end that another process stored wakes a waiting client", async () => {
    const id = await submit();
    const end = () => advance(store.db, { id }, { kind: "cancel" }, clock);
    expect(await wakesAt([`execution:${id}`], end)).toBe(true);
  });

  test("a build that another process requested wakes a waiting poll, and its end wakes all", async () => {
    const build = {
      id: "build",
      jobType: "science",
      tag: "latest",
      spec: "{}",
      imageRef: "a:latest",
    };
    const request = () =>
      requestBuild(store.db, { ...build, correlationId: "test", createdAt: clock }, by());
    expect(await wakesAt(["build"], request)).toBe(true);
    const end = () => advanceBuild(store.db, { id: "build" }, { kind: "withdraw", error }, clock);
    expect(await wakesAt(["queue"], end)).toBe(true);
  });

  test("a cancellation wakes the agent that runs the job", async () => {
    const id = await submit();
    await claim();
    const cancel = () => advance(store.db, { id }, { kind: "cancel" }, clock);
    expect(await wakesAt(["agent:agent"], cancel)).toBe(true);
  });

  describe("a session that another process", () => {
    test("requested wakes a waiting poll", async () => {
      expect(await wakesAt(["session"], () => created(store.db))).toBe(true);
    });

    test("gave a call wakes its agent", async () => {
      const { id } = await readySession(store.db, clock);
      expect(await wakesAt(["agent:a"], () => newCall(store.db, id))).toBe(true);
    });

    test("ended wakes its agent and its client", async () => {
      const topics = (id: string): Topic[] => ["agent:a", `session:${id}`];
      for (const n of [0, 1]) {
        const { id } = await readySession(store.db, clock);
        const end = () => advanceSession(store.db, { id }, { kind: "delete" }, clock);
        expect(await wakesAt([topics(id)[n]!], end)).toBe(true);
      }
    });
  });

  test("a change still wakes one of two waiting clients when the other has gone", async () => {
    const id = await submit();
    const topic = `execution:${id}` as const;
    const stays = notifier.subscribe([topic]);
    notifier.subscribe([topic]).close();
    await advance(store.db, { id }, { kind: "cancel" }, clock);
    expect(await isWoken(stays)).toBe(true);
    stays.close();
  });

  test("a change between two waits is not missed", async () => {
    await wakesAt(["job"], submit);
    await submit();
    const subscription = notifier.subscribe(["job"]);
    expect(await isWoken(subscription)).toBe(true);
    subscription.close();
  });

  test("a process wakes itself at once, without a query", async () => {
    const subscription = notifier.subscribe(["execution:x"]);
    notifier.notify("execution:x");
    await subscription.next(tooLongMs, never);
    subscription.close();
    expect(looked.times).toBeLessThan(2);
  });

  const looksWithin = async (ms: number): Promise<number> => {
    const before = looked.times;
    await new Promise((resolve) => setTimeout(resolve, ms));
    return looked.times - before;
  };

  test("while agents wait for nothing, only the beat of the process looks", async () => {
    const polls = ["job", "queue", "agent:agent"] as const;
    const subscription = notifier.subscribe([...polls]);
    clearInterval(beat);
    expect(await looksWithin(500)).toBe(0);
    subscription.close();
  });

  test.each<[string, Topic]>([
    ["its end", "execution:x"],
    ["its events", "output:x"],
    ["a session", "session:x"],
    ["a build", "build:x"],
  ])("a client who waits for %s needs no beat", async (_what, topic) => {
    const polls = notifier.subscribe(["job"]);
    clearInterval(beat);
    const subscription = notifier.subscribe([topic]);
    expect(await looksWithin(500)).toBeGreaterThan(1);
    subscription.close();
    polls.close();
  });

  test("after a job for its agents, a process looks for the next one without a beat", async () => {
    const subscription = notifier.subscribe(["job"]);
    await notifier.look();
    clearInterval(beat);
    await submit();
    await notifier.look();
    await lookedTwice(() => subscription.next(50, never));
    expect(await looksWithin(500)).toBeGreaterThan(0);
    subscription.close();
  });

  test("a database out of reach wakes nobody, and is queried again", async () => {
    let isOut = true;
    const flaky = pollingNotifier(async (awaited) => {
      looked.times++;
      if (isOut) throw new Error("out of reach");
      return readChanges(store.db, awaited, clock);
    }, log);
    clearInterval(beat);
    everyBeat(flaky);
    const id = await submit();
    await advance(store.db, { id }, { kind: "cancel" }, clock);
    const subscription = flaky.subscribe([`execution:${id}`]);
    await expect.poll(() => looked.times, { timeout: 60_000 }).toBeGreaterThan(0);
    isOut = false;
    expect(await isWoken(subscription)).toBe(true);
    subscription.close();
  });

  test("nothing is queried while nobody waits", async () => {
    await wakesAt(["job"], submit);
    await expect.poll(() => looksWithin(300), { timeout: 60_000 }).toBe(0);
  });
});

describe("paced", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test("100 requests within a second make 10 calls, and one more after the last request", () => {
    const calls: number[] = [];
    let asked = 0;
    const ask = paced(() => calls.push(asked), 100);
    for (; asked < 100; vi.advanceTimersByTime(10)) {
      asked++;
      ask();
    }
    vi.advanceTimersByTime(10_000);
    expect(calls).toEqual([1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
  });

  test("a single request makes one call, at once", () => {
    const work = vi.fn<() => void>();
    const ask = paced(work, 100);
    for (const calls of [1, 2]) {
      ask();
      expect(work).toHaveBeenCalledTimes(calls);
      vi.advanceTimersByTime(10_000);
    }
    expect(work).toHaveBeenCalledTimes(2);
  });
});

describe.each(works)("who is woken for a %s", (work) => {
  const newWaiter = (notifier: Notifier, atOnce: number, ...jobTypes: string[]): Subscription => {
    const waiter = notifier.subscribe([work]);
    const nothing = { jobTypes: new Set<string>(), atOnce: 0 };
    const wants = { job: nothing, session: nothing, build: nothing };
    waiter.wants({ ...wants, [work]: { jobTypes: new Set(jobTypes), atOnce } });
    return waiter;
  };
  const isWoken = async (waiter: Subscription): Promise<boolean> => {
    const timedOut = new AbortController();
    const next = waiter.next(tooLongMs, timedOut.signal).then(() => !timedOut.signal.aborted);
    setImmediate(() => timedOut.abort());
    return next;
  };
  const wokenOf = (waiters: Subscription[]): Promise<boolean[]> =>
    Promise.all(waiters.map(isWoken));

  test("one that wants its type; the wake-up passes on to others that want it", async () => {
    const notifier = memoryNotifier();
    const waiters = [
      newWaiter(notifier, 1, "a"),
      newWaiter(notifier, 1, "b"),
      newWaiter(notifier, 1, "a", "b"),
      newWaiter(notifier, 1, "a"),
      newWaiter(notifier, 1, "b"),
    ];
    expect(notifier.notify(work, 0, "b")).toBe(true);
    expect(await wokenOf(waiters)).toEqual([false, true, false, false, false]);
    waiters[1]!.settle(work, true);
    expect(await wokenOf(waiters)).toEqual([false, false, true, false, false]);
    waiters[2]!.close();
    expect(await wokenOf(waiters)).toEqual([false, false, false, false, true]);
    waiters[4]!.settle(work, false);
    waiters[4]!.close();
    expect(await wokenOf(waiters)).toEqual([false, false, false, false, false]);
    expect(notifier.notify(work, 0, "c")).toBe(false);
  });

  test("several wake several, each as many times as it can use, then the first", async () => {
    const notifier = memoryNotifier();
    const waiters = [newWaiter(notifier, 2, "a"), newWaiter(notifier, 1, "a")];
    for (let n = 0; n < 2; n++) notifier.notify(work, 0, "a");
    expect(await wokenOf(waiters)).toEqual([true, false]);
    for (let n = 0; n < 2; n++) notifier.notify(work, 0, "a");
    // The first has not settled its two.
    expect(await wokenOf(waiters)).toEqual([true, true]);
  });

  test("one for each type that any wants, where nobody knows the type", async () => {
    const notifier = memoryNotifier();
    const waiters = ["a", "a", "b"].map((type) => newWaiter(notifier, 1, type));
    notifier.notify(work);
    expect(await wokenOf(waiters)).toEqual([true, false, true]);
  });

  test("another one, if the first was woken before it knew that it does not want the type", async () => {
    const notifier = memoryNotifier();
    const first = notifier.subscribe([work]);
    notifier.notify(work, 0, "a");
    const second = newWaiter(notifier, 1, "a");
    const wanted = { jobTypes: new Set(["b"]), atOnce: 1 };
    first.wants({ job: wanted, session: wanted, build: wanted });
    expect(await isWoken(second)).toBe(true);
  });
});

describe("a job that is announced before it is stored", () => {
  const isWoken = async (waiter: Subscription): Promise<boolean> =>
    (await waiter.next(0, new AbortController().signal)).forJob;

  test("wakes one who waits, once", async () => {
    const notifier = memoryNotifier();
    const [first, second] = [notifier.subscribe(["job"]), notifier.subscribe(["job"])];
    const isStored = notifier.announce!("default");
    expect(await isWoken(first)).toBe(true);
    isStored();
    expect([await isWoken(first), await isWoken(second)]).toEqual([false, false]);
  });

  test("wakes one who began to wait meanwhile, and may have looked too early", async () => {
    const notifier = memoryNotifier();
    const isStored = notifier.announce!("default");
    const late = notifier.subscribe(["job"]);
    expect(await isWoken(late)).toBe(false);
    isStored();
    expect(await isWoken(late)).toBe(true);
  });

  test("wakes another if the first one leaves it, and one who comes after that", async () => {
    const notifier = memoryNotifier();
    const first = notifier.subscribe(["job"]);
    const isStored = notifier.announce!("default");
    expect(await isWoken(first)).toBe(true);
    first.settle("job", true);
    const late = notifier.subscribe(["job"]);
    isStored();
    // The first again, which may look in vain, or the late one.
    first.close();
    expect(await isWoken(late)).toBe(true);
  });
});
