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
const service = await startNode({ ...servers.open, AIRLOCK_MAX_STDOUT_BYTES: most });
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

test("records and results that nobody reads cost no memory, and are whole when they are read", async () => {
  const client = new Api(service.url);
  const { agent, job_id, lease_id } = await working(client);
  // The parts in which it is read end within characters.
  const stdout = `"\u20ac\\\n`.repeat(2 * MiB);
  await agent.result(lease_id, { stdout_base64: Buffer.from(stdout).toString("base64") });
  const paths = [`/executions/${job_id}?view=all`, `/jobs/${job_id}/result`, "/executions?limit=1"];
  for (const path of paths) await json(await askUnread(path));
  const before = residentBytes(service);
  const unread: IncomingMessage[] = [];
  for (let n = 0; n < 30; n++) unread.push(await askUnread(paths[n % 3]!));
  expect(residentBytes(service) - before).toBeLessThan((30 * stdout.length) / 4);
  for (const answer of unread.splice(0, 3)) {
    const value = (await json(answer)) as { stdout?: string; items?: { stdout: string }[] };
    expect((value.stdout ?? value.items?.[0]?.stdout) === stdout).toBe(true);
  }
  for (const answer of unread) answer.destroy();
  await agent.close();
});
