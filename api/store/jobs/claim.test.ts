import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { claimed, offer, order, plain, submit, terms } from "../../testing/claim-order.ts";
import { by, noLimits } from "../../testing/temp-store.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { setLimits } from "../tenants.ts";
import { advance } from "./advance.ts";
import { claimNext } from "./claim.ts";
import { queuePosition, findExecution } from "./read.ts";

useStore();

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
    const at = async (id: string) => queuePosition(store.db, (await findExecution(store.db, id))!);
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
