import { request } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import { backstopMs } from "../deps.ts";
import { Api, log, servers, working } from "../testing/contract/api.ts";
import { Follower, textOf } from "../testing/follower.ts";
import { type Isolates, startIsolates } from "../testing/start-isolates.ts";

let isolates: Isolates;
let [first, second, alone]: [Api, Api, Api] = [] as never;
beforeAll(async () => {
  isolates = await startIsolates(servers.open);
  const at = (name: string) => new Api(`${isolates.url}/${name}`);
  [first, second, alone] = [at("first"), at("second"), at("alone")];
});
afterAll(() => isolates.close());

const follow = async (api: Api, id: string): Promise<Follower> => {
  const client = await Follower.open(api.url, `/jobs/${id}/events`);
  await client.until(({ data }) => "status" in data && data.status === "running");
  return client;
};

/** Counts the wake-ups that the Durable Object of a job sends to its followers. */
async function countWakes(id: string): Promise<{ wakes: () => number; close(): void }> {
  const stop = new AbortController();
  const { body } = await request(`${isolates.url}/wakes/output:${id}`, {
    // Wrangler's proxy would compress the answer, and hold it back.
    headers: { "Accept-Encoding": "identity" },
    signal: stop.signal,
    bodyTimeout: 0,
  });
  let wakes = 0;
  const counting = async (): Promise<void> => {
    for await (const bytes of body as AsyncIterable<Uint8Array>) wakes += bytes.length;
  };
  counting().catch(() => {});
  return { wakes: () => wakes, close: () => stop.abort() };
}

test("clients that follow one job in several isolates get everything, and one end", async () => {
  const { agent, job_id, lease_id } = await working(second);
  const clients = await Promise.all(
    [first, first, second, alone].map((api) => follow(api, job_id)),
  );
  let text = "";
  for (let n = 0; n < 20; n++) {
    await agent.post(lease_id, "logs", { parts: [log(text.length, `line ${n}\n`)] });
    text += `line ${n}\n`;
  }
  await agent.result(lease_id, { stdout_base64: btoa(text) });
  for (const client of clients) {
    const events = await client.rest();
    expect(textOf(events, "stdout")).toBe(text);
    expect(events.filter(({ event }) => event === "end")).toHaveLength(1);
  }
});

test("output reaches a client in another isolate long before that client's next query", async () => {
  const { agent, job_id, lease_id } = await working(second);
  await using client = await follow(first, job_id);
  let fastest = Infinity;
  for (let n = 0; n < 5; n++) {
    const began = performance.now();
    await agent.post(lease_id, "logs", { parts: [log(n, String(n))] });
    expect((await client.next())?.data).toMatchObject({ text: String(n) });
    fastest = Math.min(fastest, performance.now() - began);
  }
  expect(fastest).toBeLessThan(backstopMs / 2);
  const ended = client.until(({ event }) => event === "end");
  await agent.result(lease_id, { stdout_base64: btoa("01234") });
  await ended;
});

test("a chatty job wakes its followers at most ten times a second, and after its last output", async () => {
  const { agent, job_id, lease_id } = await working(second);
  const counter = await countWakes(job_id);
  await using client = await follow(first, job_id);
  const began = performance.now();
  const posts = 10;
  for (let n = 0; n < posts; n++) {
    // A repeated post wakes as well.
    const repeats = Array.from({ length: 8 }, () =>
      agent.post(lease_id, "logs", { parts: [log(n, "x")] }),
    );
    await Promise.all(repeats);
  }
  await client.until(() => textOf(client.seen, "stdout").length === posts);
  const seconds = (performance.now() - began) / 1000;
  expect(counter.wakes()).toBeGreaterThan(0);
  expect(counter.wakes()).toBeLessThanOrEqual(10 * seconds + 1);
  counter.close();
  await agent.result(lease_id, { stdout_base64: btoa("x".repeat(posts)) });
  expect((await client.rest()).at(-1)?.event).toBe("end");
});

test("nothing is lost if the Durable Object of a followed job dies", async () => {
  const { agent, job_id, lease_id } = await working(second);
  await using client = await follow(first, job_id);
  const harness = isolates.harness.getWorker("airlock");
  const name = `output:${job_id}`;
  for (let n = 0; n < 3; n++) {
    await harness.evictDurableObject("Wakes", { name, webSockets: n < 2 ? "close" : "hibernate" });
    await agent.post(lease_id, "logs", { parts: [log(n, String(n))] });
    expect((await client.next())?.data).toMatchObject({ text: String(n) });
  }
  await agent.result(lease_id, { stdout_base64: btoa("012") });
  expect((await client.rest()).at(-1)?.event).toBe("end");
});
