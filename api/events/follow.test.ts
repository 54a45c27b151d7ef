import { beforeEach, expect, test } from "vitest";
import type { JobEvent } from "../../shared/wire/client/events.ts";
import { recordLog, recordResult } from "../agents/lease-posts.ts";
import type { Deps } from "../deps.ts";
import { claimNext } from "../store/jobs/claim.ts";
import { findExecution } from "../store/jobs/read.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { success } from "../testing/scripted-agent.ts";
import { newExecution, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";
import { createEventReader } from "./event-reader.ts";
import { followSync } from "./follow-sync.ts";
import { follow } from "./follow.ts";

useStore();
let deps: Deps;
/** Reads that were made, by the first word of their key. */
let reads: Record<string, number>;
beforeEach(() => {
  const { shareRead, ...rest } = testDeps(store.db, store.folder, () => 10);
  reads = {};
  const counted: Deps["shareRead"] = (key, read) =>
    shareRead(key, () => {
      const [kind = ""] = key.split(" ");
      reads[kind] = (reads[kind] ?? 0) + 1;
      return read();
    });
  deps = { ...rest, shareRead: counted };
});

test("100 clients of a process that follow one job share their reads", async () => {
  const execution = newExecution();
  await submitExecution(store.db, execution, 10);
  const terms = { agentId: "a", expiresAt: 1000, now: 1 };
  const [job] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  const posts = 5;
  let arrived = 0;
  let everybody = Promise.withResolvers<void>();
  const clients = Array.from({ length: 100 }, async () => {
    const events: JobEvent[] = [];
    for await (const event of follow(
      clientOf(deps),
      execution.id,
      undefined,
      new AbortController().signal,
    )) {
      if (event === "idle") continue;
      events.push(event);
      if (event.event === "end") continue;
      arrived += 1;
      if (arrived % 100 === 0) everybody.resolve();
    }
    return events;
  });
  for (let n = 0; n < posts; n++) {
    await everybody.promise;
    everybody = Promise.withResolvers();
    const parts = [{ stream: "stdout" as const, offset: n, data_base64: btoa(String(n)) }];
    await recordLog(deps, (await findExecution(store.db, execution.id))!, { parts });
  }
  await everybody.promise;
  await recordResult(deps, job!, job!.leaseId!, { ...success, stdout_base64: btoa("01234") });
  for (const events of await Promise.all(clients)) {
    const texts = events.flatMap((event) => (event.event === "stdout" ? event.data.text : []));
    expect(texts.join("")).toBe("01234");
    expect(events.filter(({ event }) => event === "end")).toHaveLength(1);
  }
  // If each of the 100 clients read for itself, there would be at least 100 reads for each post.
  for (const times of Object.values(reads)) expect(times).toBeLessThan(10 * posts);
});

test("100 clients that come when a job has ended share the reads of its result", async () => {
  const execution = newExecution();
  await submitExecution(store.db, execution, 10);
  const terms = { agentId: "a", expiresAt: 1000, now: 1 };
  const [job] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  const text = "0123456789abcde\n".repeat(32 * 1024);
  await recordResult(deps, job!, job!.leaseId!, { ...success, stdout_base64: btoa(text) });
  reads = {};
  const clients = Array.from({ length: 100 }, async () => {
    const { signal } = new AbortController();
    let read = "";
    for await (const event of follow(clientOf(deps), execution.id, undefined, signal)) {
      if (event === "idle" || event.event !== "stdout") continue;
      read += event.data.text;
    }
    return read === text;
  });
  expect(new Set(await Promise.all(clients))).toEqual(new Set([true]));
  // The job, four parts, and the end of each stream: clients that fall behind read for themselves.
  const [times] = Object.values(reads);
  expect(times).toBeGreaterThanOrEqual(7);
  expect(times).toBeLessThan(10 * 7);
});

test("what a result shows comes after what it has written, also for who read the job just before", async () => {
  await submitExecution(store.db, newExecution({ results: "all" }), 10);
  const terms = { agentId: "a", expiresAt: 1000, now: 1 };
  const [job] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  const { id, leaseId } = job!;
  const shown = { kind: "display" as const, main: true, data: { "text/plain": "7" } };
  const items = [{ ...shown, number: 1, stdout_at: 2, stderr_at: 0 }];
  await recordResult(deps, job!, leaseId!, { ...success, stdout_base64: btoa("1\n"), items });
  const readEvents = createEventReader(clientOf(deps), undefined);
  const seen: string[] = [];
  for (const state of [job!, (await findExecution(store.db, id))!])
    for await (const { event } of readEvents(state)) seen.push(event);
  expect(seen).toEqual(["status", "stdout", "display", "end"]);
});

test("a fault other than an outage of the database ends the events of a synchronous job", async () => {
  const { id } = newExecution();
  await submitExecution(store.db, newExecution({ id, mode: "sync" }), 10);
  const fault = new Error("not an outage");
  const broken: Deps = { ...deps, shareRead: () => Promise.reject(fault) };
  const events = followSync(clientOf(broken), id, false, new AbortController().signal);
  expect(await events.next()).toEqual({ done: false, value: "idle" });
  await expect(events.next()).rejects.toBe(fault);
  expect(await findExecution(store.db, id)).toMatchObject({ status: "cancelled" });
});
