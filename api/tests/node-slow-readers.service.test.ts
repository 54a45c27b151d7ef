import { createHash } from "node:crypto";
import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import { json } from "node:stream/consumers";
import { afterAll, expect, test } from "vitest";
import { Follower } from "../testing/follower.ts";
import { Api } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { working } from "../testing/contract/working.ts";
import { residentBytes } from "../testing/resident.ts";
import { startNode } from "../testing/start-node.ts";

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
  const before = residentBytes(service);
  const slow = await Promise.all(Array.from({ length: slowClients }, () => follow(job_id)));
  await write(pieces / 2, pieces);
  expect(residentBytes(service) - before).toBeLessThan(growthBytes);

  const whole = sent.digest("hex");
  expect(received.digest("hex")).toBe(whole);
  for (const client of slow.splice(0, 1)) {
    expect((await readOutput(client, undefined, pieces * MiB)).digest("hex")).toBe(whole);
    await client[Symbol.asyncDispose]();
  }
  expect(residentBytes(service) - before).toBeLessThan(growthBytes);
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
    const results = Array.from({ length: 8 }, (_, n) => ({
      number: n + 1,
      main: false,
      data: { "text/plain": "x".repeat(0.8 * MiB) },
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
    const before = residentBytes(service);
    const unread: IncomingMessage[] = [];
    for (let n = 0; n < unreadCount; n++) unread.push(await askUnread(paths[n % 3]!));
    expect(unread.map(({ statusCode }) => statusCode)).toEqual(unread.map(() => 200));
    expect(residentBytes(service) - before).toBeLessThan((unreadCount * Math.min(...sizes)) / 2);
    for (const answer of unread) answer.destroy();
    await agent.close();
  },
);
