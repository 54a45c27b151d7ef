import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Follower, textOf } from "../testing/follower.ts";
import { Api } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { working } from "../testing/contract/working.ts";
import { startNode, startNodeIn } from "../testing/start-node.ts";
import { startSqld } from "../testing/start-sqld.ts";

const base64 = (text: string) => Buffer.from(text).toString("base64");
const output = (offset: number, text: string) => ({
  parts: [{ stream: "stdout", offset, data_base64: base64(text) }],
});
const follow = (url: string, id: string, after = "") =>
  Follower.open(url, `/jobs/${id}/events?after=${after}`);

test("a client continues across a restart of the API, which ends its stream in order", async () => {
  const folder = mkdtempSync(join(tmpdir(), "airlock-events-"));
  try {
    const first = await startNodeIn(folder, servers.open);
    const { agent, job_id, lease_id } = await working(new Api(first.url));
    await agent.post(lease_id, "logs", output(0, "before "));
    const live = await follow(first.url, job_id);
    const { id } = await live.until(({ event }) => event === "stdout");
    first.child.kill("SIGTERM");
    expect(await live.next()).toBeUndefined();
    expect(await first.exited).toBe(0);

    const { port } = new URL(first.url);
    const second = await startNodeIn(folder, { ...servers.open, AIRLOCK_PORT: port });
    await using again = await follow(second.url, job_id, id);
    await agent.post(lease_id, "logs", output(7, "and "));
    expect((await again.next())?.data).toMatchObject({ text: "and " });
    await agent.result(lease_id, { stdout_base64: base64("before and after") });
    const events = [...live.seen, ...(await again.rest())];
    expect(textOf(events, "stdout")).toBe("before and after");
    expect(events.at(-1)?.event).toBe("end");
    await second.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("one API process brings the output that another one has stored", async () => {
  const folder = mkdtempSync(join(tmpdir(), "airlock-events-sqld-"));
  const sqld = await startSqld(folder);
  const vars = { ...servers.open, AIRLOCK_DATABASE_URL: sqld.url };
  const [one, other] = [await startNode(vars), await startNode(vars)];
  try {
    const { agent, job_id, lease_id } = await working(new Api(one.url));
    await using client = await follow(other.url, job_id);
    await client.until(({ event }) => event === "status");
    const polled = agent.poll({ wait_s: 20, free_slots: 0, watching: [] });
    expect((await polled).watch).toEqual([lease_id]);
    await agent.post(lease_id, "logs", output(0, "a"));
    const { id } = await client.until(({ event }) => event === "stdout");
    await using moved = await follow(one.url, job_id, id);
    await agent.post(lease_id, "logs", output(1, "b"));
    expect((await client.next())?.data).toMatchObject({ text: "b" });
    expect((await moved.next())?.data).toMatchObject({ text: "b" });
    await agent.result(lease_id, { stdout_base64: base64("abc") });
    expect(textOf(await client.rest(), "stdout")).toBe("abc");
    expect(textOf(await moved.rest(), "stdout")).toBe("bc");
  } finally {
    await Promise.all([one.close(), other.close()]);
    await sqld.close();
    rmSync(folder, { recursive: true });
  }
});

test("500 clients follow one job, and each gets everything once", async () => {
  const service = await startNode(servers.open);
  try {
    const { agent, job_id, lease_id } = await working(new Api(service.url));
    const clients = await Promise.all(
      Array.from({ length: 500 }, () => follow(service.url, job_id)),
    );
    let text = "";
    for (let i = 0; i < 5; i++) {
      await agent.post(lease_id, "logs", output(text.length, `line ${i}\n`));
      text += `line ${i}\n`;
    }
    await agent.result(lease_id, { stdout_base64: base64(text) });
    for (const client of clients) {
      const events = await client.rest();
      expect(textOf(events, "stdout")).toBe(text);
      expect(events.filter(({ event }) => event === "end")).toHaveLength(1);
    }
  } finally {
    await service.close();
  }
});
