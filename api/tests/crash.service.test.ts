import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { ExecutionPage, type ExecutionRecord } from "../../shared/wire/executions.ts";
import type { SubmittedBatch } from "../../shared/wire/submissions.ts";
import { reservePort } from "../testing/reserve-port.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { type NodeProcess, startNodeIn } from "../testing/start-node.ts";
import { miscounted } from "../testing/store-model.ts";

describe("node crash", () => {
  const token = "agent-token-0123456789";

  let folder: string;
  let service: Service;
  beforeEach(async () => {
    folder = tempFolder();
    service = new Service(await reservePort());
    await service.start();
  });
  afterEach(() => service.kill());

  /** A service that is killed and started again with the same data and address. */
  class Service {
    readonly url: string;
    #api: NodeProcess | undefined;
    #up = Promise.withResolvers<void>();

    constructor(port: number) {
      this.url = `http://127.0.0.1:${port}`;
    }

    async start(): Promise<void> {
      this.#api = await startNodeIn(folder, {
        AIRLOCK_PORT: new URL(this.url).port,
        AIRLOCK_AGENT_TOKENS: token,
        AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
        AIRLOCK_MAX_QUEUE_SIZE: "100000",
        // Longer than a busy machine needs to restart the service.
        AIRLOCK_LEASE_TTL_S: "600",
      });
      this.#up.resolve();
    }

    async kill(): Promise<void> {
      this.#up = Promise.withResolvers<void>();
      await this.#api?.close();
    }

    /** Tries until it succeeds. After each failure it waits until the service is ready. */
    async insist<T>(request: () => Promise<T>): Promise<T> {
      for (;;) {
        await this.#up.promise;
        try {
          return await request();
        } catch (error) {
          if (!(error instanceof TypeError)) throw error;
        }
      }
    }
  }

  async function submit(url: string, code: string, tenant = "default"): Promise<string> {
    const response = await fetch(`${url}/execute/async`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Airlock-Tenant": tenant },
      body: JSON.stringify({ code, input_data: { code } }),
    });
    const { job_id } = (await response.json()) as { job_id: string };
    expect(response.status).toBe(202);
    return job_id;
  }

  const ofAll = { headers: { "X-Airlock-Tenant": "*" } };

  async function allRecords(url: string): Promise<ExecutionRecord[]> {
    const records: ExecutionRecord[] = [];
    for (;;) {
      const query = `limit=1000&offset=${records.length}&view=full`;
      const response = await fetch(`${url}/executions?${query}`, ofAll);
      const { items, has_more } = ExecutionPage.parse(await response.json());
      records.push(...items);
      if (!has_more) return records;
    }
  }

  test("fault 3: killed after a commit and before the answer, it answers the repeated post with 200", async () => {
    const id = await submit(service.url, "print('kept')");
    const agent = new ScriptedAgent(service.url, token);
    const { lease_id } = await agent.takeJob();
    const posts = [
      () => agent.post(lease_id, "started", { job_ref: null }),
      () => agent.upload(lease_id, "code.txt", "kept"),
      () => agent.result(lease_id, { stdout_base64: btoa("kept") }),
    ];
    const written = [
      "SELECT code_started_at AS what FROM executions",
      "SELECT name AS what FROM artifacts",
      "SELECT ended_at AS what FROM executions",
    ];
    const reader = createClient({ url: `file:${folder}/airlock.db` });
    for (const [i, post] of posts.entries()) {
      // Killed as soon as the change is in the database, whether or not the answer was sent.
      const unheard = post().catch(() => undefined);
      while (((await reader.execute(written[i]!)).rows[0]?.["what"] ?? null) === null) {
        await setImmediate();
      }
      await service.kill();
      await unheard;
      await service.start();
      expect((await post()).status).toBe(200);
    }
    reader.close();
    const [record] = await allRecords(service.url);
    expect(record).toMatchObject({ execution_id: id, status: "succeeded", stdout: "kept" });
    expect(record?.artifacts).toMatchObject([{ name: "code.txt" }]);
  });

  /** Returns true at the n-th call, then at the n-th call after that for the next n, and so on; then `all` resolves. */
  function countdown(counts: number[]): { all: Promise<void>; isDue: () => boolean } {
    const { promise, resolve } = Promise.withResolvers<void>();
    const left = [...counts];
    const isDue = (): boolean => {
      if (left[0] === undefined || --left[0] > 0) return false;
      left.shift();
      if (left.length === 0) resolve();
      return true;
    };
    return { all: promise, isDue };
  }

  /** An agent that "runs" its jobs: it uploads the code and prints it. */
  async function work(stop: AbortSignal): Promise<void> {
    const agent = new ScriptedAgent(service.url, token);
    while (!stop.aborted) {
      const { jobs } = await service.insist(() => agent.poll({ free_slots: 2, wait_s: 0.5 }));
      for (const { lease_id, code, input_json } of jobs) {
        expect(JSON.parse(input_json)).toEqual({ code });
        const posts = [
          () => agent.post(lease_id, "started", { job_ref: null }),
          () => agent.upload(lease_id, "code.txt", code),
          () => agent.result(lease_id, { stdout_base64: btoa(code) }),
        ];
        for (const post of posts) expect((await service.insist(post)).status).toBe(200);
      }
    }
  }

  async function untilAllEnded(url: string): Promise<void> {
    const records = await allRecords(url);
    for (const { execution_id } of records.filter(({ ended_at }) => ended_at === null)) {
      const result = await fetch(`${url}/jobs/${execution_id}/result?wait=true`, ofAll);
      expect(result.status).toBe(200);
    }
  }

  /** What each tenant uses by its counts, which must be what its rows say. */
  async function readTenants() {
    const reader = createClient({ url: `file:${folder}/airlock.db` });
    expect((await reader.execute(miscounted)).rows).toEqual([]);
    const { rows } = await reader.execute(
      "SELECT name, queued, running FROM tenants ORDER BY name",
    );
    reader.close();
    return rows;
  }

  test("after repeated kill -9 under load, every acknowledged job is stored and ends once, and each tenant's use is counted", async () => {
    const limits = { method: "PUT", headers: { "Content-Type": "application/json" } };
    const body = JSON.stringify({ max_running: 2, max_queued: 100_000 });
    await fetch(`${service.url}/tenants/search`, { ...limits, body });
    const acknowledged = new Map<string, string>();
    const kills = countdown([5, 30, 60, 20]);
    let restarted = Promise.resolve();
    const [load, labour] = [new AbortController(), new AbortController()];

    const agents = Array.from({ length: 3 }, () => work(labour.signal));
    const clients = Array.from({ length: 6 }, async (_, client) => {
      for (let n = 0; !load.signal.aborted; n++) {
        const code = `print(${client}, ${n})`;
        // A submission without an answer may or may not be stored; a new one follows.
        const tenant = client % 2 === 0 ? "default" : "search";
        acknowledged.set(await service.insist(() => submit(service.url, code, tenant)), code);
        if (kills.isDue()) {
          restarted = restarted
            .then(() => service.kill())
            .then(() => readTenants())
            .then(() => service.start());
        }
      }
    });
    await kills.all;
    await restarted;
    load.abort();
    await Promise.all(clients);
    await untilAllEnded(service.url);
    labour.abort();
    await Promise.all(agents);

    const records = await allRecords(service.url);
    const ids = new Set(records.map(({ execution_id }) => execution_id));
    expect([...acknowledged.keys()].filter((id) => !ids.has(id))).toEqual([]);
    for (const record of records) {
      const code = acknowledged.get(record.execution_id) ?? record.stdout;
      expect(record).toMatchObject({ status: "succeeded", stdout: code, error: null });
      expect(record.artifacts).toMatchObject([{ name: "code.txt", size_bytes: code.length }]);
    }
    expect(new Set(records.map(({ tenant }) => tenant))).toEqual(new Set(["default", "search"]));
    const none = { queued: 0, running: 0 };
    expect(await readTenants()).toMatchObject([
      { name: "default", ...none },
      { name: "search", ...none },
    ]);
  }, 300_000);
});

describe("node batch crash", () => {
  const vars = { AIRLOCK_API_RATE_LIMIT_ENABLED: "false", AIRLOCK_MAX_QUEUE_SIZE: "100000" };
  const jobs = Array.from({ length: 1000 }, (_, n) => ({ code: `print(${n})` }));

  let folder: string;
  beforeEach(() => {
    folder = tempFolder();
  });

  /** Sends a batch, and kills the service after `afterMs` or after the answer. Returns the answer, if any. */
  async function submitAndKill(key: string, afterMs?: number): Promise<SubmittedBatch | undefined> {
    const api = await startNodeIn(folder, { ...vars, AIRLOCK_PORT: "0" });
    const answer = fetch(`${api.url}/execute/batch`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Idempotency-Key": key },
      body: JSON.stringify({ jobs, atomic: true }),
    })
      .then(async (response) => (await response.json()) as SubmittedBatch)
      .catch(() => undefined);
    await (afterMs === undefined ? answer : sleep(afterMs));
    await api.close();
    return answer;
  }

  async function storedJobs(): Promise<Map<string, number>> {
    const client = createClient({ url: `file:${folder}/airlock.db` });
    const { rows } = await client.execute(
      "SELECT batch_id, count(*), count(code) FROM executions LEFT JOIN payloads ON execution_id = id GROUP BY 1",
    );
    client.close();
    for (const row of rows) expect(row[1], "every job has its payload").toBe(row[2]);
    return new Map(rows.map((row) => [row[0] as string, Number(row[1])]));
  }

  test("after kill -9 during atomic batches each is stored whole or not at all, and whole if it was answered", async () => {
    const answered: string[] = [];
    for (const afterMs of [0, 20, 40, 60, 80, 120, undefined]) {
      const answer = await submitAndKill(`after ${afterMs}`, afterMs);
      if (answer) answered.push(answer.batch_id);
      const stored = await storedJobs();
      expect(new Set([jobs.length, ...stored.values()])).toEqual(new Set([jobs.length]));
      expect([...stored.keys()]).toEqual(expect.arrayContaining(answered));
    }
    expect(answered.length).toBeGreaterThan(0);
  });
});
