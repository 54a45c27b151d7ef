import * as fc from "fast-check";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { LeasedJob } from "../../shared/wire/leases.ts";
import type { Deps, Subscription } from "../deps.ts";
import { advance } from "../jobs/lease.ts";
import { type ExecutionRow, findExecution, queuePosition } from "../jobs/sql.ts";
import { wakeForCall } from "../sessions/lease.ts";
import { setLimits } from "../tenants/sql.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { newCall, readySession, runningCall } from "../testing/session-store.ts";
import { by, noLimits, storeJob, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { recordAgent } from "./agents.ts";
import { claimNext, jobTypesUsedSince, nextAfter } from "./claim.ts";
import { recordResult } from "./posts.ts";

/** Of the agent that claims. */
const terms = { agentId: "a", expiresAt: 1000, now: 100 };
const offer = (jobType: string, gpus = 0) => ({ jobType, gpus, jobVersion: "v", jobRef: null });
const plain = offer("default");

/** Submits a job for each letter, in order. The letter is the tenant; a capital "K" is an urgent job of tenant k. */
async function submit(keys: string, changes = {}): Promise<string[]> {
  const ids: string[] = [];
  for (const key of keys) {
    const isUrgent = key !== key.toLowerCase();
    const urgency = isUrgent ? { jobType: "urgent", priority: 2 } : { priority: 0 };
    ids.push(await storeJob(store.db, { tenant: key.toLowerCase(), ...urgency, ...changes }));
  }
  return ids;
}

/** Leases jobs; returns the tenant of each, or the type of those of other types. */
async function claimed(slots: number, gpus = 0, offers = [plain, offer("urgent")]) {
  const rows = await claimNext(store.db, terms, { slots, gpus }, offers);
  return rows.map(({ tenant, jobType }) =>
    jobType === "urgent" ? tenant.toUpperCase() : jobType === "default" ? tenant : jobType,
  );
}

/** Ends a job that a tenant runs. */
async function endOne(tenant: string, now: number): Promise<void> {
  const { rows } = await store.db.client.execute({
    sql: "select lease_id from executions where status = 'running' and tenant = ? limit 1",
    args: [tenant],
  });
  const leaseId = rows[0]!["lease_id"] as string;
  const ended = { kind: "complete", status: "succeeded", error: null, exitCode: 0 } as const;
  await advance(store.db, { leaseId }, { ...ended, leaseId }, now);
}

/** The tenants of the jobs that a claim leases, in order. */
const order = async (jobs: number) => (await claimed(jobs)).join("");

useStore();

describe("claim", () => {
  describe("the order of the queue", () => {
    test.each([
      ["aaaa", "aaaa", "one key: first come first served"],
      ["aaaaaabb", "ababaaaa", "a key with few jobs does not wait for all of one with many"],
      ["abcaabbcc", "abcabcabc", "tenants take turns"],
      ["aaaaaA", "aaaaAa", "priority goes so many turns earlier"],
      ["aaaaaaAAbb", "ababaaaAaA", "and takes no more turns than others have"],
    ])("%s: %s, %s", async (submitted, expected) => {
      await submit(submitted);
      expect(await order(submitted.length)).toBe(expected);
    });

    test("is the same for any number of jobs leased at once", async () => {
      await submit("aaaaaabbbcA");
      let found = "";
      for (const slots of [1, 3, 2, 4, 1]) found += await order(slots);
      expect(found).toBe("abcababaaAa");
    });

    test("a tenant that comes late starts at the turn that the others have reached, not before it", async () => {
      await submit("aaaaaaaa");
      expect(await order(3)).toBe("aaa");
      await submit("bbb");
      expect(await order(8)).toBe("abababaa");
    });

    test("a job that waits for its agent does not save up turns for its tenant", async () => {
      await submit("a", { jobType: "rare" });
      await submit("aaaaa");
      expect(await order(5)).toBe("aaaaa");
      await submit("abb");
      expect(await order(3)).toBe("abb");
      expect(await claimed(2, 0, [plain, offer("rare")])).toEqual(["rare"]);
    });

    test("a job that is tried again keeps its place", async () => {
      const [first] = await submit("aab");
      const [row] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, [plain]);
      const error = { type: "docker_error", message: "", phase: "startup" } as const;
      const release = { kind: "release", leaseId: row!.leaseId!, error, retryAt: 90 } as const;
      await advance(store.db, { leaseId: row!.leaseId! }, release, 90);
      const [again] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, [plain]);
      expect(again?.id).toBe(first);
    });

    test("a position counts the jobs of its tenant that are leased earlier", async () => {
      for (const tenant of ["a", "b"]) await setLimits(store.db, tenant, noLimits, by());
      const ids = await submit("aaaabA");
      const at = async (id: string) =>
        queuePosition(store.db, (await findExecution(store.db, id))!);
      expect(await Promise.all(ids.map(at))).toEqual([1, 2, 3, 5, 1, 4]);
    });
  });

  describe("tenants take turns in each job type", () => {
    const rare = offer("rare");
    const low = { jobType: "low", priority: -1000 };

    test("even if an idle agent has leased a job of another type that was submitted last", async () => {
      await submit("aaaaaaaa");
      await submit("a", { jobType: "rare" });
      expect(await claimed(1, 0, [rare])).toEqual(["rare"]);
      await submit("bb");
      expect(await order(10)).toBe("ababaaaaaa");
    });

    test("even if a job of low priority was leased before its turn", async () => {
      await submit("aaaaaaaa");
      await submit("a", low);
      expect(await claimed(1, 0, [offer("low")])).toEqual(["low"]);
      await submit("bb");
      expect(await order(10)).toBe("ababaaaaaa");
    });

    test("even if a job was leased for its high priority", async () => {
      await submit("aaaaaa");
      await submit("a", { jobType: "top", priority: 1000 });
      expect(await claimed(1, 0, [plain, offer("top")])).toEqual(["top"]);
      await submit("bb");
      expect(await order(8)).toBe("ababaaaa");
    });

    test("even if a job of the type waits for its next attempt", async () => {
      await submit("aaaaaaaa");
      const [row] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, [plain]);
      await claimNext(store.db, { ...terms, now: 101 }, { slots: 3, gpus: 0 }, [plain]);
      const error = { type: "docker_error", message: "", phase: "startup" } as const;
      const release = { kind: "release", leaseId: row!.leaseId!, error, retryAt: 500 } as const;
      await advance(store.db, { leaseId: row!.leaseId! }, release, 110);
      await submit("bbbb");
      expect(await order(8)).toBe("abababab");
    });

    test("and with keys that wait for another type on the same agents", async () => {
      await submit("aaaaaaaa");
      expect(await claimed(4, 0, [plain, rare])).toEqual(["a", "a", "a", "a"]);
      await submit("bbbb", { jobType: "rare" });
      expect(await claimed(8, 0, [plain, rare])).toEqual([
        "a",
        "rare",
        "a",
        "rare",
        "a",
        "rare",
        "a",
        "rare",
      ]);
    });
  });

  test("loads of 1, 10 and 100 jobs: each tenant has its turns, whoever came first", async () => {
    await submit("a".repeat(100) + "b".repeat(10) + "c");
    const found = await order(111);
    expect(found.slice(0, 21)).toBe(`abc${"ab".repeat(9)}`);
    expect(found.slice(21)).toBe("a".repeat(90));
  });

  test("a stream of jobs of high priority does not keep the others waiting forever", async () => {
    await submit("b");
    const taken: (string | null | undefined)[] = [];
    for (let n = 0; n < 4; n++) {
      await submit("A");
      taken.push(...(await claimed(1)));
    }
    expect(taken).toContain("b");
  });

  describe("GPUs", () => {
    const offers = [plain, offer("one", 1), offer("two", 2)];
    const jobs = async (...types: string[]) => {
      for (const jobType of types) await submit("a", { jobType });
    };

    test("only free ones are given, and jobs that need none are leased", async () => {
      await jobs("one", "two", "one", "default");
      expect(await claimed(4, 3, offers)).toEqual(["one", "two", "a"]);
      expect(await claimed(4, 0, offers)).toEqual([]);
      expect(await claimed(4, 1, offers)).toEqual(["one"]);
    });

    test("a job that needs more than the free ones is not overtaken by jobs that need fewer", async () => {
      await jobs("two", "one", "one", "default");
      expect(await claimed(4, 1, offers)).toEqual(["a"]);
      expect(await claimed(4, 2, offers)).toEqual(["two"]);
      expect(await claimed(1, 2, offers)).toEqual(["one"]);
    });
  });

  /** Submissions of three keys and claims, in any order. */
  const step = fc.oneof(
    fc.record({ key: fc.constantFrom("a", "b", "c"), count: fc.integer({ min: 1, max: 5 }) }),
    fc.record({ slots: fc.integer({ min: 1, max: 4 }) }),
  );

  test("every key gets its share, in its own order, and no job waits forever", async () => {
    const property = fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const waiting = new Map<string, string[]>();
      /** By job: number of earlier jobs of its key, and number of jobs of each other key leased before it. */
      const passed = new Map<string, { before: number; others: Map<string, number> }>();
      const take = async (slots: number) => {
        const rows = await claimNext(store.db, terms, { slots, gpus: 0 }, [plain]);
        for (const { id, tenant } of rows) {
          expect(waiting.get(tenant)?.shift(), "in the order of its key").toBe(id);
          passed.delete(id);
          for (const [key, ids] of waiting) {
            if (key === tenant) continue;
            for (const other of ids) {
              const { before, others } = passed.get(other)!;
              const n = (others.get(tenant) ?? 0) + 1;
              others.set(tenant, n);
              expect(n, "jobs of another key that go before").toBeLessThanOrEqual(before + 2);
            }
          }
        }
        return rows.length;
      };
      for (const one of steps) {
        if ("slots" in one) {
          await take(one.slots);
          continue;
        }
        const ids = await submit(one.key.repeat(one.count));
        const line = waiting.get(one.key) ?? [];
        for (const id of ids) passed.set(id, { before: line.push(id) - 1, others: new Map() });
        waiting.set(one.key, line);
      }
      while ((await take(4)) > 0);
      expect([...waiting.values()].flat()).toEqual([]);
    });
    await fc.assert(property, { numRuns: 25 });
  });

  describe("tenants share the slots of an agent", () => {
    const dayMs = 86_400_000;
    const now = 20_000 * dayMs;
    const at = { agentId: "a", expiresAt: now + 1000, now };
    const columns = { availableAt: now, createdAt: now };
    const register = (slots: number) => {
      const status = new ScriptedAgent().status();
      return recordAgent(
        store.db,
        { ...status, slots, agent: { ...status.agent, id: "a" } },
        "t",
        now,
      );
    };
    const make = async (tenants: string, days = 0) => {
      for (const name of tenants) await setLimits(store.db, name, noLimits, by(now - days * dayMs));
    };
    const take = async (slots: number) =>
      (await claimNext(store.db, at, { slots, gpus: 0 }, [plain]))
        .map(({ tenant }) => tenant)
        .join("");
    const end = (tenant: string) => endOne(tenant, now);

    test("one tenant alone leaves the last slot to the other, whose first job starts at once", async () => {
      await register(4);
      await make("ab");
      await submit("aaaaaa", columns);
      expect(await take(4)).toBe("aaa");
      expect(await take(1)).toBe("");
      await submit("b", columns);
      expect(await take(1)).toBe("b");
      await end("b");
      expect(await take(1)).toBe("");
      await end("a");
      expect(await take(2)).toBe("a");
    });

    test("a tenant above its share waits for those below", async () => {
      await register(4);
      await make("ab");
      await submit("aaaaaaaa", columns);
      expect(await take(4)).toBe("aaa");
      await submit("bbbb", columns);
      expect(await take(1)).toBe("b");
      await end("a");
      expect(await take(1)).toBe("b");
      await end("b");
      expect(await take(1)).toBe("b");
      await end("a");
      expect(await take(1)).toBe("a");
    });

    test.each([
      ["the only one", "a", "", 0],
      ["the only one that was used in the last week", "a", "b", 8],
    ])("%s uses all of them", async (_what, made, old, days) => {
      await register(4);
      await make(made);
      await make(old, days);
      await submit("aaaaaa", columns);
      expect(await take(4)).toBe("aaaa");
    });

    test("a tenant that submits after a long time counts again", async () => {
      await register(4);
      await make("a");
      await make("b", 100);
      await submit("b", columns);
      expect(await take(1)).toBe("b");
      await end("b");
      await submit("aaaaaa", columns);
      expect(await take(4)).toBe("aaa");
    });

    test("a job whose files are being uploaded takes no slot: the agent says how many are free", async () => {
      await register(4);
      await make("ab");
      await submit("aaaaaa", columns);
      expect(await take(4)).toBe("aaa");
      expect(await take(4)).toBe("aaa");
    });

    test("an agent with one slot gives it to anybody", async () => {
      await register(1);
      await make("ab");
      await submit("aa", columns);
      expect(await take(1)).toBe("a");
      await end("a");
      expect(await take(1)).toBe("a");
    });

    const move = fc.oneof(
      fc.record({ key: fc.constantFrom("a", "b", "c"), count: fc.integer({ min: 1, max: 4 }) }),
      fc.record({ ends: fc.nat({ max: 2 }) }),
      fc.record({ claims: fc.integer({ min: 1, max: 3 }) }),
    );
    const slots = 4;

    /** The rules, as a claim of one slot follows them. */
    function nextOf(waiting: { tenant: string; rank: number; seq: number }[], running: string[]) {
      const held = (tenant: string) => running.filter((one) => one === tenant).length;
      const newcomers = ["a", "b", "c"].filter((tenant) => held(tenant) === 0).length;
      const around = new Set([...running, ...waiting.map(({ tenant }) => tenant)]).size;
      const share = Math.max(1, Math.floor(slots / around));
      const isLast = running.length + 1 >= slots;
      const allowed = waiting.filter(
        ({ tenant }) => !isLast || newcomers === 0 || held(tenant) === 0,
      );
      const late = ({ tenant }: { tenant: string }) => Number(held(tenant) >= share);
      const order = allowed.sort((x, y) => late(x) - late(y) || x.rank - y.rank || x.seq - y.seq);
      return order[0]?.tenant;
    }

    test("whatever comes and ends in any order, the next job is the one that the rules name", async () => {
      await register(slots);
      await make("abc");
      const seen = { kept: 0, late: 0 };
      const run = async (moves: (typeof move extends fc.Arbitrary<infer M> ? M : never)[]) => {
        await store.db.client.execute("delete from executions");
        const running: string[] = [];
        const taken: string[] = [];
        const asked: string[] = [];
        for (const one of moves) {
          if ("key" in one) await submit(one.key.repeat(one.count), columns);
          else if ("ends" in one) {
            const tenant = running[one.ends];
            if (tenant === undefined) continue;
            await end(tenant);
            running.splice(one.ends, 1);
          } else {
            for (let n = 0; n < one.claims && running.length < slots; n++) {
              const { rows } = await store.db.client.execute(
                "select tenant, rank, seq from executions where status = 'queued'",
              );
              const waiting = rows.map(({ tenant, rank, seq }) => ({
                tenant: tenant as string,
                rank: Number(rank),
                seq: Number(seq),
              }));
              const first = waiting.toSorted((x, y) => x.rank - y.rank || x.seq - y.seq)[0]?.tenant;
              const expected = nextOf(waiting, running);
              taken.push(await take(1));
              asked.push(expected ?? "");
              if (expected === undefined && first !== undefined) seen.kept++;
              if (expected !== undefined && expected !== first) seen.late++;
              if (expected !== undefined) running.push(expected);
            }
          }
        }
        expect(taken).toEqual(asked);
      };
      await fc.assert(fc.asyncProperty(fc.array(move, { minLength: 10, maxLength: 40 }), run), {
        numRuns: 40,
      });
      expect(seen.kept).toBeGreaterThan(0);
      expect(seen.late).toBeGreaterThan(0);
    });
  });

  test.each([
    [undefined, ["c"]],
    ["frames", ["a", "c"]],
    ["mount", ["a", "b", "c"]],
  ] as const)("an agent that knows inputs as %s gets the jobs %s", async (inputs, expected) => {
    await submit("a", { inputs: "frames" });
    await submit("b", { inputs: "mount" });
    await submit("c");
    const rows = await claimNext(store.db, terms, { slots: 3, gpus: 0, inputs }, [plain]);
    expect(rows.map(({ tenant }) => tenant)).toEqual(expected);
    expect(await claimNext(store.db, terms, { slots: 1, gpus: 0, inputs }, [plain])).toEqual([]);
  });
});

describe("max running", () => {
  describe("a tenant that runs max_running jobs", () => {
    const limit = (tenant: string, most: number) =>
      setLimits(store.db, tenant, { ...noLimits, max_running: most }, by(0));
    const end = (tenant: string) => endOne(tenant, 101);

    test("gets no more, and others pass it", async () => {
      await limit("a", 2);
      await submit("aaaaaab");
      expect(await order(4)).toBe("aba");
      expect(await order(4)).toBe("");
      await submit("bb");
      expect(await order(4)).toBe("bb");
      await end("a");
      expect(await order(4)).toBe("a");
      await limit("a", 3);
      expect(await order(4)).toBe("a");
    });

    test("costs a claim no write while only its jobs wait", async () => {
      await limit("a", 1);
      await submit("aa");
      expect(await order(1)).toBe("a");
      const write = vi.spyOn(store.db.client, "batch");
      expect(await order(1)).toBe("");
      expect(write).not.toHaveBeenCalled();
      await submit("b");
      expect(await order(1)).toBe("b");
      expect(write).toHaveBeenCalled();
    });

    test("takes the room that it has, in any number of claims, and of all job types together", async () => {
      await limit("a", 3);
      await submit("aAaAaA");
      expect((await order(1)) + (await order(5))).toHaveLength(3);
      expect(await order(5)).toBe("");
    });

    test("does not hold the front, so that a newcomer does not pass the others", async () => {
      await limit("a", 1);
      await submit("aaaccccc");
      expect(await order(1)).toBe("a");
      expect(await order(4)).toBe("cccc");
      await submit("bb");
      expect(await order(3)).toBe("cbb");
    });

    test("keeps its place for when it has room", async () => {
      await limit("a", 1);
      await submit("aabbbb");
      expect((await order(3)) + (await order(1))).toBe("abbb");
      await end("a");
      expect(await order(2)).toBe("ab");
    });
  });
});

describe("take jobs", () => {
  let deps: Deps;
  let ended: { agentId: string; sessionId: null };
  let waits: PromiseWithResolvers<void>;

  beforeEach(async () => {
    deps = testDeps(store.db, store.folder, Date.now);
    const { notifier } = deps;
    waits = Promise.withResolvers();
    const subscribe: typeof notifier.subscribe = (topics) => {
      const subscription = notifier.subscribe(topics);
      return {
        ...subscription,
        // However slow the machine is.
        next(_timeoutMs, signal) {
          waits.resolve();
          return subscription.next(60_000, signal);
        },
      };
    };
    deps.notifier = { ...notifier, subscribe };
    const agent = new ScriptedAgent();
    const status = { ...agent.status(), images: [deps.config.base_image] };
    await recordAgent(store.db, status, "token", Date.now());
    ended = { agentId: agent.id, sessionId: null };
  });

  async function submitHello(): Promise<string> {
    const id = await storeJob(store.db);
    deps.notifier.notify("job");
    return id;
  }

  /** What the answer to the result of an execution brings, with so many jobs that wait. */
  async function takeNext(
    of: Pick<ExecutionRow, "agentId" | "sessionId">,
    signal = new AbortController().signal,
    queued = 0,
  ): Promise<LeasedJob[]> {
    const next = nextAfter(deps, { ...of, queued }, signal)!;
    next.claim();
    return next.jobs(queued).finally(() => next.close());
  }

  /** Resolves when another agent that waits for a job is woken. */
  async function otherWait(): Promise<void> {
    const other = deps.notifier.subscribe(["job"]);
    await other.next(0, new AbortController().signal);
    other.close();
  }

  test("a slot that was freed gets the job that waits", async () => {
    const id = await submitHello();
    const jobs = await takeNext(ended, undefined, 1);
    expect(jobs).toMatchObject([{ execution_id: id }]);
  });

  test("if none waits, it gets the one that comes next, and another agent is woken for the one after it", async () => {
    const taken = takeNext(ended);
    await waits.promise;
    const other = otherWait();
    await storeJob(store.db);
    await submitHello();
    expect(await taken).toHaveLength(1);
    await other;
  });

  test("an agent that hangs up gets none, and another agent is woken", async () => {
    const hungUp = new AbortController();
    const taken = takeNext(ended, hungUp.signal);
    await waits.promise;
    const other = otherWait();
    const id = await submitHello();
    hungUp.abort();
    expect(await taken).toEqual([]);
    expect((await findExecution(store.db, id))?.status).toBe("queued");
    await other;
  });

  describe("after a call", () => {
    let polls: Subscription;
    let call: ExecutionRow;
    let isPollWoken: boolean;
    beforeEach(async () => {
      const { id } = await readySession(store.db);
      const running = await runningCall(store.db, id);
      call = running;
      // The lease of the session begins at 1.
      deps = { ...deps, now: () => 1 };
      await recordResult(deps, call, running.leaseId, success);
      isPollWoken = false;
      polls = deps.notifier.subscribe([`agent:${call.agentId}`]);
      void polls.next(60_000, new AbortController().signal).then(() => (isPollWoken = true));
      waits = Promise.withResolvers();
    });

    /** As a client does it. */
    async function submitCall(): Promise<string> {
      const id = await newCall(store.db, call.sessionId!);
      wakeForCall(deps, { id: call.sessionId!, agentId: call.agentId });
      return id;
    }

    test("the answer waits for the next call of the session, and the agent's poll stays", async () => {
      const taken = takeNext(call);
      await waits.promise;
      const id = await submitCall();
      expect(await taken).toMatchObject([{ execution_id: id }]);
      expect(isPollWoken).toBe(false);
    });

    test("if the agent hangs up, its poll gets the call", async () => {
      const hungUp = new AbortController();
      const taken = takeNext(call, hungUp.signal);
      await waits.promise;
      hungUp.abort();
      await submitCall();
      expect(await taken).toEqual([]);
      await polls.next(0, new AbortController().signal);
      expect(isPollWoken).toBe(true);
    });
  });
});

test("returns the requested job types whose latest execution is recent", async () => {
  const used: [string, number][] = [
    ["old", 10],
    ["new", 10],
    ["new", 20],
    ["unasked", 30],
  ];
  for (const [jobType, createdAt] of used) {
    await storeJob(store.db, { jobType, createdAt });
  }
  const since = (time: number) => jobTypesUsedSince(store.db, ["old", "new", "never"], time);
  expect(await since(20)).toEqual(["new"]);
  expect(await since(21)).toEqual([]);
  expect(await since(10)).toEqual(["old", "new"]);
});
