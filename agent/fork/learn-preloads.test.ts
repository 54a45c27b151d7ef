import { expect, test } from "vitest";
import { specWith } from "../sandbox/testing/report.ts";
import { createTestClock } from "../testing/test-clock.ts";
import { createPreloadLearner } from "./learn-preloads.ts";
import { zygoteKey } from "./zygotes.ts";

const settle = () => new Promise(setImmediate);
const minutes = 60_000;

/** A learner whose imports take as long as the test says; 0: it has no such module. */
function createWorld(tookMs: Record<string, number>) {
  const clock = createTestClock();
  const prepared: string[] = [];
  const world = { isBusy: false, failure: null as Error | null };
  const learner = createPreloadLearner({
    prepare: async ({ preload }) => {
      prepared.push(preload.join(" "));
      if (world.failure) throw world.failure;
      return new Map(preload.map((name) => [name, tookMs[name] ?? 0]));
    },
    isBusy: () => world.isBusy,
    clock,
  });
  /** Has a job of a tenant with these imports come, and returns what its zygote has imported. */
  async function comeOf(tenant: string, ...imports: string[]): Promise<readonly string[]> {
    const { preload } = learner.specFor(specWith({}), imports, tenant);
    await settle();
    return preload;
  }
  const come = (...imports: string[]) => comeOf("a", ...imports);
  return { world, learner, clock, prepared, come, comeOf };
}

test("the fourth job in ten minutes with the same slow imports finds them imported", async () => {
  const { come, prepared } = createWorld({ numpy: 80, pandas: 300 });
  for (let n = 0; n < 3; n++) expect(await come("numpy", "pandas")).toEqual([]);
  expect(prepared).toEqual(["numpy pandas"]);
  expect(await come("numpy", "pandas", "json")).toEqual(["numpy", "pandas"]);
  expect(await come("numpy")).toEqual([]);
  expect(await come()).toEqual([]);
});

test("no tenant's jobs teach or find what another's import", async () => {
  const { comeOf, prepared, learner } = createWorld({ numpy: 80 });
  for (const tenant of ["a", "b", "c", "a", "b"]) await comeOf(tenant, "numpy");
  expect(prepared).toEqual([]);
  await comeOf("a", "numpy");
  expect(await comeOf("a", "numpy")).toEqual(["numpy"]);
  expect(await comeOf("b", "numpy")).toEqual([]);
  const [ofA, ofB] = ["a", "b"].map((tenant) => learner.specFor(specWith({}), ["numpy"], tenant));
  expect(zygoteKey(ofA!)).not.toBe(zygoteKey(ofB!));
});

test("jobs that come too seldom are not learned from", async () => {
  const { come, clock, prepared } = createWorld({ numpy: 80 });
  for (let n = 0; n < 5; n++) {
    await come("numpy");
    clock.advance(5 * minutes);
  }
  expect(prepared).toEqual([]);
});

test("modules that are quick to import, or not there, are left out", async () => {
  const { come, prepared } = createWorld({ numpy: 80, json: 2 });
  for (let n = 0; n < 7; n++) await come("json", "numpy", "missing");
  expect(prepared).toEqual(["json numpy missing", "numpy"]);
  expect(await come("json", "numpy")).toEqual(["numpy"]);
  for (let n = 0; n < 5; n++) await come("json");
  expect(prepared).toHaveLength(2);
});

test("nothing is prepared while jobs wait, nor again for a while after a failure", async () => {
  const { world, learner, clock, come, prepared } = createWorld({ numpy: 80 });
  world.isBusy = true;
  for (let n = 0; n < 5; n++) await come("numpy");
  expect(prepared).toEqual([]);
  world.isBusy = false;
  world.failure = new Error("a preloaded module has started a thread");
  for (let n = 0; n < 5; n++) await come("numpy");
  expect(prepared).toEqual(["numpy"]);
  world.failure = null;
  clock.advance(11 * minutes);
  for (let n = 0; n < 3; n++) await come("numpy");
  expect(await come("numpy")).toEqual(["numpy"]);
  learner.forget(specWith({ preload: ["numpy"], learnedFor: "a" }));
  expect(await come("numpy")).toEqual([]);
  expect(prepared).toHaveLength(2);
});

test("few sets are kept, those used last", async () => {
  const names = ["a", "b", "c", "d"];
  const { come } = createWorld(Object.fromEntries(names.map((name) => [name, 50])));
  for (const name of names) for (let n = 0; n < 3; n++) await come(name);
  expect(await come("d")).toEqual(["d"]);
  expect(await come("a")).toEqual([]);
});
