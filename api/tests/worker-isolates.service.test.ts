import { setTimeout as sleep } from "node:timers/promises";
import { type Client, createClient } from "@libsql/client/web";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { NewApiKey } from "../../shared/wire/access.ts";
import { SubmittedJob } from "../../shared/wire/submissions.ts";
import { backstopMs } from "../deps.ts";
import { Api, body, log, operatorKey, servers, working } from "../testing/contract/api.ts";
import { Follower, textOf } from "../testing/follower.ts";
import { type Isolates, startIsolates } from "../testing/start-isolates.ts";

const limit = 5000;
let isolates: Isolates;
let database: Client;
let [first, second, alone]: [Api, Api, Api] = [] as never;
beforeAll(async () => {
  isolates = await startIsolates({
    ...servers.open,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "true",
    AIRLOCK_API_RATE_LIMIT_REQUESTS: String(limit),
    AIRLOCK_API_RATE_LIMIT_WINDOW_SECONDS: "3600",
  });
  database = createClient({ url: isolates.databaseUrl });
  const at = (name: string) => new Api(`${isolates.url}/${name}`);
  [first, second, alone] = [at("first"), at("second"), at("alone")];
});
afterAll(async () => {
  database.close();
  await isolates.close();
});

describe("worker isolates", () => {
  /** Ends the Durable Object of the wake-ups; unless it only sleeps, its sockets end, too. */
  async function evict(webSockets: "close" | "hibernate"): Promise<void> {
    const options = { name: "wakes", webSockets };
    await isolates.harness.getWorker("airlock").evictDurableObject("Wakes", options);
  }

  /** Duration of the fastest of several attempts, in ms. */
  async function fastestOf(times: number, work: () => Promise<unknown>): Promise<number> {
    let fastest = Infinity;
    for (let n = 0; n < times; n++) {
      const began = performance.now();
      await work();
      fastest = Math.min(fastest, performance.now() - began);
    }
    return fastest;
  }

  test("a poll and a waiter of one isolate are woken by another isolate, long before they query again", async () => {
    const agent = second.agent();
    await agent.poll();
    const fastest = await fastestOf(5, async () => {
      const polled = agent.poll({ wait_s: 20 });
      await second.newest();
      const answer = first.post("/execute", { code: "print(1)" });
      const { jobs } = await polled;
      expect((await agent.result(jobs[0]!.lease_id)).status).toBe(200);
      expect(body(await answer)).toMatchObject({ success: true });
    });
    expect(fastest).toBeLessThan(backstopMs / 2);
    await second.tidy();
  });

  test("the Durable Object of the wake-ups may sleep while a poll waits", async () => {
    const agent = second.agent();
    await agent.poll();
    const fastest = await fastestOf(3, async () => {
      const polled = agent.poll({ wait_s: 20 });
      await second.newest();
      await evict("hibernate");
      await first.submit();
      const { jobs } = await polled;
      await agent.result(jobs[0]!.lease_id);
    });
    expect(fastest).toBeLessThan(backstopMs / 2);
    await second.tidy();
  });

  test("nothing is lost if the Durable Object dies or is out of reach while a poll waits", async () => {
    const agents = [second.agent(), alone.agent()];
    const polls = agents.map((agent) => agent.poll({ wait_s: 20, free_slots: 1 }));
    await second.newest();
    await evict("close");
    const submitted = [await first.submit(), await alone.submit()].map(({ job_id }) => job_id);
    const replies = await Promise.all(polls);
    const leased = replies.map(({ jobs }) => jobs[0]!.execution_id);
    expect(leased.sort()).toEqual(submitted.sort());
    await Promise.all([second.tidy(), alone.tidy()]);
  });

  test("requests are counted across isolates; agents and /health are not", async () => {
    const client = "203.0.113.7";
    const ask = (api: Api, path = "/pool/stats") => api.get(path, { "X-Test-Client": client });
    const left = async (api: Api) => Number((await ask(api)).headers.get("RateLimit-Remaining"));
    expect(await left(first)).toBe(limit - 1);
    expect(await left(second)).toBe(limit - 2);
    expect(await left(first)).toBe(limit - 3);

    const hits = {
      sql: "update rate_windows set hits = ? where client = ?",
      args: [limit, client],
    };
    await database.execute(hits);
    for (const api of [first, second, first]) {
      const refused = await ask(api);
      expect(refused.status).toBe(429);
      expect(refused.headers.get("RateLimit-Remaining")).toBe("0");
      const seconds = Number(refused.headers.get("Retry-After"));
      expect(seconds).toBeGreaterThan(3000);
      expect(seconds).toBeLessThanOrEqual(3600);
      expect((await ask(api, "/health/live")).status).toBe(200);
    }
    const { rows } = await database.execute("select client from rate_windows");
    // The other address is that of the tests' own requests.
    expect(rows).toHaveLength(2);
  });

  test("attempts to join are counted across isolates, separately from other requests", async () => {
    const client = "203.0.113.8";
    const text = JSON.stringify({ code: "guessed", token_sha256: "0".repeat(64), name: "host" });
    const join = (api: Api) => api.post("/agent/v1/join", text, { "X-Test-Client": client });
    for (const api of [first, second]) expect((await join(api)).status).not.toBe(429);
    const count = "update rate_windows set hits = hits + 28 where client = ? returning hits";
    const { rows } = await database.execute({ sql: count, args: [`join ${client}`] });
    expect(rows).toEqual([{ hits: 30 }]);
    for (const api of [second, first]) {
      const refused = await join(api);
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
      expect((await api.get("/pool/stats", { "X-Test-Client": client })).status).toBe(200);
    }
  });

  test("a failure of R2 is 503 with Retry-After and without its error text; a wrong hash is 400", async () => {
    const { job_id } = await second.submit();
    const agent = second.agent();
    const { lease_id } = await agent.takeJob();
    const bucket = (state: string) => fetch(`${isolates.url}/bucket/${state}`);

    await bucket("fails");
    const refused = await agent.upload(lease_id, "a.txt", "content");
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
    expect((await database.execute("select name from artifacts")).rows).toEqual([]);
    await bucket("works");
    const forged = await agent.upload(lease_id, "a.txt", "content", {
      "X-Airlock-SHA256": "0".repeat(64),
    });
    expect(forged.status).toBe(400);
    expect((await database.execute("select name from artifacts")).rows).toEqual([]);

    expect((await agent.upload(lease_id, "a.txt", "content")).status).toBe(200);
    expect((await agent.result(lease_id)).status).toBe(200);
    const path = `/jobs/${job_id}/artifacts/a.txt`;
    await bucket("fails");
    expect((await second.get(path)).status).toBe(503);
    await bucket("works");
    // Uses a plain fetch, because the proxy to the isolates sends no Content-Length.
    for (const { url } of [first, second]) {
      expect(await (await fetch(url + path)).text()).toBe("content");
    }
  });
});

describe("worker events", () => {
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
      await harness.evictDurableObject("Wakes", {
        name,
        webSockets: n < 2 ? "close" : "hibernate",
      });
      await agent.post(lease_id, "logs", { parts: [log(n, String(n))] });
      expect((await client.next())?.data).toMatchObject({ text: String(n) });
    }
    await agent.result(lease_id, { stdout_base64: btoa("012") });
    expect((await client.rest()).at(-1)?.event).toBe("end");
  });
});

describe("worker keys", async () => {
  const operator = { "X-API-Key": operatorKey };

  const isolates = await startIsolates(servers["with keys"]);
  afterAll(() => isolates.close());

  test("a key that one isolate revokes is refused by the others, which knew it, and its stream there ends", async () => {
    const [first, second, alone] = ["first", "second", "alone"].map(
      (name) => new Api(`${isolates.url}/${name}`),
    ) as [Api, Api, Api];
    const asked = { name: "a-key", scopes: ["run", "read"] };
    const { id, key } = NewApiKey.parse(body(await first.post("/keys", asked, operator)));
    const headers = { Authorization: `Bearer ${key}` };
    const statusAt = async (api: Api) => (await api.get("/usage", headers)).status;
    for (const api of [second, alone]) expect(await statusAt(api)).toBe(200);
    const submitted = await second.post("/execute/async", { code: "1" }, headers);
    const { job_id } = SubmittedJob.parse(body(submitted));
    const follower = await Follower.open(second.url, `/jobs/${job_id}/events`, headers);

    await first.post(`/keys/${id}/revoke`, undefined, operator);
    for (const api of [second, alone]) {
      while ((await statusAt(api)) !== 401) await sleep(100);
    }
    await follower.rest();
    expect(follower.seen.map(({ event }) => event)).not.toContain("end");
    await first.tidy();
  });
});
