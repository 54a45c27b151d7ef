import { expect, test } from "vitest";
import type { JobEvent } from "../../shared/wire/client/events.ts";
import { Follower } from "../testing/follower.ts";
import { Api } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { release, working } from "../testing/contract/working.ts";
import type { ScriptedAgent } from "../testing/scripted-agent.ts";
import { startNode } from "../testing/start-node.ts";
import { startSqld } from "../testing/start-sqld.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

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
      const bytes = Buffer.from(textOf(attempt, stream)).subarray(offset, Math.min(offset + 7, to));
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
