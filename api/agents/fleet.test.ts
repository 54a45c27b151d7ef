import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { environments } from "../jobs/environment.ts";
import { agents } from "../store/schema.ts";
import { database, type Database, type DurableClient } from "../store/database.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { by, openIn, openTempStore, testDeps, type TempStore } from "../testing/temp-store.ts";
import { forgetAgent, markLeft, recordAgent, setDraining, touchAgent } from "./agents.ts";
import { findAgent, listAgents, servingKinds } from "./fleet.ts";
import { mayBuild, mayRun, servingAgents } from "./placement.ts";

const image = "new:2";
const job_types = {
  new: { base_image: image },
  gpu: { labels: { gpu: "a100" }, gpus: 1 },
};

let store: TempStore;
let dbs: [Database, Database];
let now: number;
beforeEach(async () => {
  store = await openTempStore();
  dbs = [store.db, database(await openIn(store.folder))];
  now = 1_000_000;
});
afterEach(() => {
  dbs[1].client.close();
  store.close();
});

const depsOf = (db: Database) => testDeps(db, store.folder, () => now, { job_types } as never);
const statusOf = (host: number, variant: number) => {
  const status = new ScriptedAgent().status();
  const labels = { host: String(host), ...(variant % 3 === 0 && { gpu: "a100" }) };
  return {
    ...status,
    agent: { ...status.agent, id: `host-${host}`, name: `host-${9 - host}`, labels },
    gpus: { total: variant % 4 === 0 ? 1 : 0, free: 0 },
    images: variant % 2 === 0 ? [image] : variant % 5 === 0 ? [] : ["python:3.13-slim"],
    engine: { ...status.engine, available: variant % 5 !== 1 },
  };
};

describe("what a process knows of the agents", () => {
  const host = fc.nat(4);
  const step = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ do: fc.constant("tell" as const), host, variant: fc.nat(9) }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("touch" as const), host, variant: host }) },
    fc.record({
      do: fc.constantFrom("drain" as const, "leave" as const, "forget" as const, "wait" as const),
      host,
      variant: fc.nat(1),
    }),
  );
  type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

  const act = async (db: Database, { do: what, host: n, variant }: Step): Promise<unknown> => {
    const id = `host-${n}`;
    if (what === "tell") return recordAgent(db, statusOf(n, variant), "token", now);
    if (what === "touch") return touchAgent(db, statusOf(n, variant), now, variant > 1);
    if (what === "drain") return setDraining(db, id, variant === 0, by(now));
    if (what === "leave") return markLeft(db, id, now);
    if (what === "forget") return forgetAgent(db, id);
    return (now += 20_000);
  };

  test("is what the table says, whatever two processes write at the same time", async () => {
    const { config } = depsOf(store.db);
    const all = environments(config, []);
    const steps = fc.array(
      fc.record({ writer: fc.nat(1), together: fc.array(step, { minLength: 1, maxLength: 4 }) }),
      { minLength: 1, maxLength: 25 },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (rounds) => {
        for (const { writer, together } of rounds) {
          const written = together.map((one) => act(dbs[writer]!, one));
          // Looks that begin before the writes are committed.
          await Promise.all([...dbs, ...dbs].map((db) => servingKinds(depsOf(db), all)));
          await Promise.all(written);
          const rows = await store.db.orm.select().from(agents).orderBy(agents.name);
          const here = rows.filter(({ leftAt }) => leftAt === null);
          const serving = servingAgents(here, config, now);
          for (const db of dbs) {
            expect(await listAgents(db)).toEqual(here);
            for (const row of rows) expect(await findAgent(db, row.id)).toEqual(row);
            const kinds = await servingKinds(depsOf(db), all);
            for (const environment of all)
              for (const agent of here) {
                expect(mayRun(agent, environment, kinds)).toBe(mayRun(agent, environment, serving));
                expect(mayBuild(agent, environment, kinds, true)).toBe(
                  mayBuild(agent, environment, serving, true),
                );
              }
          }
        }
      }),
      { numRuns: 40 },
    );
  });

  test("is read anew only where it has changed, and worked out anew only when a kind may have come or gone", async () => {
    for (let n = 0; n < 60; n++) await recordAgent(store.db, statusOf(n, n), "token", now);
    const all = environments(depsOf(store.db).config, []);
    const kinds = await servingKinds(depsOf(store.db), all);
    expect(kinds.length).toBeLessThan(12);
    const execute = vi.spyOn(store.db.client as DurableClient, "kept");
    await touchAgent(store.db, statusOf(7, 0), (now += 1000), true);
    expect(await servingKinds(depsOf(store.db), all)).toBe(kinds);
    expect(await execute.mock.results[0]!.value).toHaveLength(1);
    await setDraining(store.db, "host-7", true, by(now));
    expect(await servingKinds(depsOf(store.db), all)).not.toBe(kinds);
  });

  const { agent: plain, ...rest } = statusOf(1, 2);
  const accepting = (accepts: object) => ({
    agent: { ...plain, accepts: { ...plain.accepts, ...accepts } },
  });
  test.each([
    [1, "a label that no job type asks for", { agent: { ...plain, labels: { host: "x" } } }],
    [1, "an image that no job type needs", { images: [image, "other"] }],
    [1, "slots", { slots: 9 }],
    [1, "free GPUs", { gpus: { total: 0, free: 1 } }],
    [2, "a label that a job type asks for", { agent: { ...plain, labels: { gpu: "a100" } } }],
    [2, "GPUs", { gpus: { total: 1, free: 0 } }],
    [2, "images", { images: [] }],
    [2, "the job types that it accepts", accepting({ job_types: ["new"] })],
    [2, "whether it builds", accepting({ builds: false })],
    [2, "how it gives jobs their inputs", accepting({ inputs: "mount" })],
  ])("has %i kinds of agents that differ in %s", async (kinds, _what, differing) => {
    const other = { ...rest, agent: plain, ...differing };
    await recordAgent(store.db, { ...rest, agent: plain }, "token", now);
    await recordAgent(store.db, { ...other, agent: { ...other.agent, id: "b" } }, "token", now);
    const all = environments(depsOf(store.db).config, []);
    expect(await servingKinds(depsOf(store.db), all)).toHaveLength(kinds);
  });

  test("wakes all polls when a kind comes or goes, and only then", async () => {
    const deps = depsOf(store.db);
    const all = environments(deps.config, []);
    const woken: unknown[] = [];
    deps.notifier.notify = (topic) => woken.push(topic) > 0;
    const afterwards = async (write: Promise<unknown>): Promise<unknown[]> => {
      await write;
      woken.length = 0;
      await servingKinds(deps, all);
      return [...woken];
    };
    const tell = (host: number, variant: number) =>
      recordAgent(store.db, statusOf(host, variant), "token", now);
    expect(await afterwards(tell(0, 5))).toEqual([]);
    expect(await afterwards(tell(1, 5))).toEqual([]);
    expect(await afterwards(tell(2, 2))).toEqual(["queue"]);
    expect(await afterwards(markLeft(store.db, "host-1", now))).toEqual([]);
    expect(await afterwards(markLeft(store.db, "host-2", now))).toEqual(["queue"]);
    now += 31_000;
    expect(await afterwards(Promise.resolve())).toEqual(["queue"]);
    expect(await afterwards(touchAgent(store.db, statusOf(0, 0), now, true))).toEqual(["queue"]);
  });
});
