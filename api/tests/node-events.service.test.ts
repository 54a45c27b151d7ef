import { createHash } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { residentBytes } from "../../shared/testing/memory.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { JobEvent } from "../../shared/wire/executions.ts";
import { Api, release, servers, working } from "../testing/contract/api.ts";
import { startDatabaseProxy } from "../testing/database-proxy.ts";
import { Follower, textOf } from "../testing/follower.ts";
import type { ScriptedAgent } from "../testing/scripted-agent.ts";
import { startNode, startNodeIn } from "../testing/start-node.ts";
import { startSqld } from "../testing/start-stores.ts";

describe("node events", () => {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const output = (offset: number, text: string) => ({
    parts: [{ stream: "stdout", offset, data_base64: base64(text) }],
  });
  const follow = (url: string, id: string, after = "") =>
    Follower.open(url, `/jobs/${id}/events?after=${after}`);

  test("a client continues across a restart of the API, which ends its stream in order", async () => {
    const folder = tempFolder();
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
  });

  test("at rest an API process asks its server for news and what is overdue in one request, and a poll there gets another process's job", async () => {
    const sqld = await startSqld(join(tempFolder(), "db"));
    const proxy = await startDatabaseProxy(sqld.url);
    const start = (url: string) => startNode({ ...servers.open, AIRLOCK_DATABASE_URL: url });
    const [one, other] = [await start(sqld.url), await start(proxy.url)];
    try {
      const agent = new Api(other.url).agent();
      const polling = agent.takeJob();
      // Of the last three requests for news, none was one of those that follow news closely.
      const isAtRest = () => {
        const news = proxy.sent.filter((sent) => sent.includes("sqlite_sequence")).slice(-3);
        return news.length === 3 && news.every((sent) => sent.includes("lease_expires_at"));
      };
      await expect.poll(isAtRest, { timeout: 60_000 }).toBe(true);
      const { job_id } = await new Api(one.url).submit();
      expect((await polling).execution_id).toBe(job_id);
      await agent.close();
    } finally {
      await Promise.all([one.close(), other.close(), proxy[Symbol.asyncDispose]()]);
      await sqld.close();
    }
  });
});

describe("node cursors", () => {
  /** Characters of one to four bytes. */
  const textOf = (attempt: number, stream: string): string =>
    `${attempt} ${stream}: aé漢😀\n`.repeat(8);

  /** Posts a part of both streams of an attempt, in pieces that cut characters apart. */
  async function write(
    agent: ScriptedAgent,
    leaseId: string,
    attempt: number,
    from: number,
    to: number,
  ): Promise<void> {
    for (let offset = from; offset < to; offset += 7) {
      const parts = ["stdout", "stderr"].map((stream) => {
        const bytes = Buffer.from(textOf(attempt, stream)).subarray(
          offset,
          Math.min(offset + 7, to),
        );
        return { stream, offset, data_base64: bytes.toString("base64") };
      });
      expect((await agent.post(leaseId, "logs", { parts })).status).toBe(200);
    }
  }

  /** A client that hangs up, and later continues from its last event. */
  class Restless {
    readonly seen: JobEvent[] = [];

    /** Continues up to an event, or the end of the stream. */
    async take(url: string, jobId: string, isLast: (n: number) => boolean = () => false) {
      await using client = await this.follow(url, jobId);
      while (!isLast(client.seen.length) && (await client.next())) {
        this.seen.push(client.seen.at(-1)!);
      }
    }

    follow(url: string, jobId: string): Promise<Follower> {
      const after = this.seen.findLast(({ id }) => id !== undefined)?.id ?? "";
      return Follower.open(url, `/jobs/${jobId}/events?after=${after}`);
    }

    text(attempt: number, stream: "stdout" | "stderr"): string {
      return this.seen
        .map((e) => (e.event === stream && e.data.attempt === attempt ? e.data.text : ""))
        .join("");
    }

    count(name: JobEvent["event"]): number {
      return this.seen.filter(({ event }) => event === name).length;
    }
  }

  test("clients that break off anywhere lose and repeat nothing: after a restart, at another process, across a lost attempt, after the end", async () => {
    const folder = tempFolder();
    const sqld = await startSqld(folder);
    const vars = { ...servers.open, AIRLOCK_DATABASE_URL: sqld.url };
    let one = await startNode(vars);
    const other = await startNode(vars);
    try {
      const { agent, job_id, lease_id } = await working(new Api(other.url));
      const bytes = Buffer.byteLength(textOf(1, "stdout"));
      await write(agent, lease_id, 1, 0, bytes);
      const clients = Array.from({ length: 12 }, () => new Restless());
      for (const [k, client] of clients.entries()) {
        await client.take(one.url, job_id, (n) => n === 3 * k);
      }
      expect((await agent.renew()).watch).toEqual([lease_id]);
      await release(agent, lease_id);
      const again = await agent.takeJob();
      const half = Math.floor(bytes / 2);
      await write(agent, again.lease_id, 2, 0, half);

      one.child.kill("SIGTERM");
      expect(await one.exited).toBe(0);
      await one.close();
      one = await startNode(vars);
      const at = (n: number): string => (n % 2 === 0 ? one : other).url;
      for (const [k, client] of clients.entries()) {
        await client.take(at(k), job_id, (n) => n === 5);
      }
      const late = new Restless();
      await late.take(one.url, job_id, () => late.count("retry") > 0);
      for (const stream of ["stdout", "stderr"] as const) {
        expect(late.text(1, stream)).toBe(textOf(1, stream));
      }

      await write(agent, again.lease_id, 2, half, bytes);
      const [stdout_base64, stderr_base64] = ["stdout", "stderr"].map((stream) =>
        Buffer.from(textOf(2, stream)).toString("base64"),
      );
      await agent.result(again.lease_id, { stdout_base64, stderr_base64 } as object);
      const last = [...clients, late];
      for (const [k, client] of last.entries()) {
        await client.take(at(k), job_id);
        for (const stream of ["stdout", "stderr"] as const) {
          expect(textOf(1, stream).startsWith(client.text(1, stream))).toBe(true);
          expect(client.text(2, stream)).toBe(textOf(2, stream));
        }
        expect([client.count("retry"), client.count("end")]).toEqual([1, 1]);
        expect(client.seen.at(-1)?.event).toBe("end");
        expect((await client.follow(at(k + 1), job_id)).status).toBe(204);
      }
    } finally {
      await Promise.all([one.close(), other.close()]);
      await sqld.close();
    }
  });
});

describe("node slow readers", async () => {
  const MiB = 1024 * 1024;
  const pieces = 32;
  const slowClients = 20;
  /** A quarter of what the slow clients do not read. V8 may need tens of MiB until it collects garbage. */
  const growthBytes = (slowClients * pieces * MiB) / 4;

  const most = String((pieces + 2) * MiB);
  const service = await startNode({
    ...servers.open,
    AIRLOCK_MAX_STDOUT_BYTES: most,
    AIRLOCK_MAX_REQUEST_BYTES: String(8 * MiB),
  });
  afterAll(() => service.close());

  const pieceOf = (n: number): string => `piece ${n}\n`.padStart(64, "-").repeat(MiB / 64);
  const follow = (id: string) => Follower.open(service.url, `/jobs/${id}/events`);

  /** Reads a client's output up to a number of bytes, and hashes it. */
  async function readOutput(client: Follower, hash = createHash("sha256"), bytes = 0) {
    for (let read = 0; read < bytes;) {
      const event = await client.next();
      if (!event) throw new Error("the stream ended early");
      if (event.event !== "stdout") continue;
      read += event.data.text.length;
      hash.update(event.data.text);
    }
    return hash;
  }

  test("clients that do not read cost no memory, and later get every byte", async () => {
    const { agent, job_id, lease_id } = await working(new Api(service.url));
    await using fast = await follow(job_id);
    const sent = createHash("sha256");
    const received = createHash("sha256");
    const write = async (from: number, to: number): Promise<void> => {
      for (let n = from; n < to; n++) {
        const data_base64 = btoa(pieceOf(n));
        sent.update(pieceOf(n));
        const parts = [{ stream: "stdout", offset: n * MiB, data_base64 }];
        expect((await agent.post(lease_id, "logs", { parts })).status).toBe(200);
        await readOutput(fast, received, MiB);
      }
    };
    await write(0, pieces / 2);
    const before = residentBytes(service.child.pid!);
    const slow = await Promise.all(Array.from({ length: slowClients }, () => follow(job_id)));
    await write(pieces / 2, pieces);
    expect(residentBytes(service.child.pid!) - before).toBeLessThan(growthBytes);

    const whole = sent.digest("hex");
    expect(received.digest("hex")).toBe(whole);
    for (const client of slow.splice(0, 1)) {
      expect((await readOutput(client, undefined, pieces * MiB)).digest("hex")).toBe(whole);
      await client[Symbol.asyncDispose]();
    }
    expect(residentBytes(service.child.pid!) - before).toBeLessThan(growthBytes);
    await Promise.all(slow.map((client) => client[Symbol.asyncDispose]()));
    await agent.close();
  });

  /** Asks for an answer, and reads nothing of it but its head. */
  async function askUnread(path: string): Promise<IncomingMessage> {
    const asked = request(`${service.url}${path}`, { agent: false });
    asked.end();
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    return answer.pause();
  }

  const unreadCount = 24;

  test.each(["stdout", "output", "stdin", "results"] as const)(
    "records with much %s are whole, and cost little memory while nobody reads them",
    async (large) => {
      const client = new Api(service.url);
      // The parts in which it is read end within characters.
      const stdin = `"\u20ac\\\n`.repeat(0.75 * MiB);
      const text = `"\u20ac\\\n`.repeat(MiB);
      const output = { text: `€\\`.repeat(1.75 * MiB) };
      const results = Array.from({ length: 64 }, (_, n) => ({
        number: n + 1,
        main: false,
        data: { "text/plain": "x".repeat(0.1 * MiB) },
        stdout_at: 0,
        stderr_at: 0,
      }));
      const asked = { results: true, ...(large === "stdin" && { stdin }) };
      const { agent, job_id, lease_id } = await working(client, asked);
      const { status } = await agent.result(lease_id, {
        ...(large === "stdout" && { stdout_base64: Buffer.from(text).toString("base64") }),
        // A mark that is no part of the JSON.
        ...(large === "output" && { output_json: `\ufeff${JSON.stringify(output)}` }),
        ...(large === "results" && { items: results }),
      });
      expect(status).toBe(200);
      const paths = [
        `/executions/${job_id}?view=all`,
        large === "stdin" ? `/executions?view=full&limit=1` : `/jobs/${job_id}/result`,
        `/executions?limit=1&fields=${large}`,
      ];
      const expected = JSON.stringify({ stdout: text, stdin, output, results }[large]);
      const sizes = [];
      for (const path of paths) {
        const value = (await json(await askUnread(path))) as Record<string, unknown> & {
          items?: Record<string, unknown>[];
        };
        expect(JSON.stringify((value.items?.[0] ?? value)[large]) === expected).toBe(true);
        sizes.push(Buffer.byteLength(JSON.stringify(value)));
      }
      const before = residentBytes(service.child.pid!);
      const unread: IncomingMessage[] = [];
      onTestFinished(() => unread.forEach((answer) => answer.destroy()));
      for (let n = 0; n < unreadCount; n++) unread.push(await askUnread(paths[n % 3]!));
      expect(unread.map(({ statusCode }) => statusCode)).toEqual(unread.map(() => 200));
      expect(residentBytes(service.child.pid!) - before).toBeLessThan(
        (unreadCount * Math.min(...sizes)) / 2,
      );
      await agent.close();
    },
  );
});
