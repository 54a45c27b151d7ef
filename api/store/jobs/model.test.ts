import * as fc from "fast-check";
import { expect, test } from "vitest";
import { leaseTtlMs, type Step } from "../../testing/store-steps.ts";
import { makeStart } from "../../testing/store-start.ts";
import { StoreWorld } from "../../testing/store-world.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

const folder = tempFolder();
const startFile = await makeStart(folder);

const kind = <K extends Step["do"]>(name: K) => ({ do: fc.constant(name) });
const oneIn = (n: number) => fc.integer({ min: 1, max: n }).map((drawn) => drawn === n);
const agent = fc.nat({ max: 2 });
const count = fc.integer({ min: 1, max: 3 });
const pick = fc.nat({ max: 5 });

const nothing = fc.record(kind("nothing"));
const submit = fc.record({
  ...kind("submit"),
  mode: fc.constantFrom("async" as const, "async" as const, "sync" as const),
  key: fc.constantFrom("key 0", "key 1", "key 2", ...Array.from({ length: 7 }, () => undefined)),
  payload: fc.constantFrom("payload 0", "payload 1"),
});
const claim = fc.record({ ...kind("claim"), agent, count, replyLost: oneIn(3) });
const redeliver = fc.record({ ...kind("redeliver"), agent, count, replyLost: oneIn(3) });
const renew = fc.record({ ...kind("renew"), agent, alsoLease: pick });
const post = fc.record({
  ...kind("post"),
  what: fc.constantFrom("start", "log", "upload", "result", "release"),
  lease: pick,
  body: fc.nat({ max: 3 }),
  byAnother: oneIn(8),
});
const cancel = fc.record({ ...kind("cancel"), execution: pick });
const wait = fc.record({ ...kind("wait"), ms: fc.constantFrom(1, 500, 1000, leaseTtlMs - 1) });
const expire = fc.record({ ...kind("expire"), afterMs: fc.constantFrom(0, leaseTtlMs) });
const restart = fc.record(kind("restart"));
const writes = fc.oneof(submit, claim, post, cancel, expire);
const cutPower = fc.record({
  ...kind("cut power"),
  during: writes,
  writtenOfTen: fc.nat({ max: 10 }),
  garbage: fc.boolean(),
});

/** Shrinks towards steps that do nothing, so that a failing run keeps only the steps that it needs to fail. */
const step: fc.Arbitrary<Step> = fc.oneof(
  { withCrossShrink: true },
  { weight: 1, arbitrary: nothing },
  { weight: 8, arbitrary: submit },
  { weight: 7, arbitrary: claim },
  { weight: 3, arbitrary: redeliver },
  { weight: 2, arbitrary: renew },
  { weight: 12, arbitrary: post },
  { weight: 2, arbitrary: cancel },
  { weight: 4, arbitrary: wait },
  { weight: 4, arbitrary: expire },
  { weight: 1, arbitrary: restart },
  { weight: 2, arbitrary: cutPower },
);

/** Outcomes that the runs must reach; otherwise they would prove little. */
const mustBeSeen = [
  "accepted",
  "existing",
  "full",
  "claim",
  "claim again",
  "redeliver",
  "renew",
  "renew, some lost",
  ...["start", "log", "upload", "result", "release"].flatMap((what) =>
    [200, 403, 409].map((status) => `${what} ${status}`),
  ),
  "release 200 requeued",
  "expire queued",
  "expire failed",
  "expire cancelled",
  "cancel 200 cancelled",
  "cancel 200 running",
  "cancel 409 failed",
  "restart",
  "cut, nothing written",
  "cut, all written",
];

test("the store keeps its invariants under any events in any order", async () => {
  const seen = new Set<string>();
  const property = fc.asyncProperty(
    fc.array(step, { minLength: 30, maxLength: 45, size: "max" }),
    async (steps) => {
      const world = await StoreWorld.open(startFile);
      try {
        for (const one of steps) {
          seen.add(await world.run(one));
        }
      } finally {
        world.close();
      }
    },
  );
  await fc.assert(property, { numRuns: 200 });
  expect([...seen]).toEqual(expect.arrayContaining(mustBeSeen));
}, 300_000);
