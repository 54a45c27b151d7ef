import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, createClient } from "@libsql/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Build } from "../../shared/wire/build.ts";
import type { DeadLetter } from "../../shared/wire/client/dead-letter.ts";
import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import type { PollReply } from "../../shared/wire/agent/lease.ts";
import { createApp } from "../app.ts";
// Must come after the app, which extends zod with OpenAPI descriptions.
import { loadConfig } from "../../shared/config/config.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { openIn, openTempStore, type TempStore } from "../testing/temp-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { database } from "./database.ts";
import { readDefaultRetention } from "./settings.ts";

/** Databases of released versions, by version. scripts/past-databases/make.ts stores them. */
const folder = join(import.meta.dirname, "../testing/past");
const pasts = readdirSync(folder).map((file) => file.replace(".sql", ""));

const token = "agent-token-0-0123456789";
/** The API key that its jobs were submitted with. */
const apiKey = "api-key-0-0123456789abcd";

/** Answers of a past version about the data in its database. */
interface Answers {
  executions: ExecutionRecord[];
  deadLetters: DeadLetter[];
  builds: Build[];
}

interface Table {
  columns: string[];
  rows: unknown[][];
}

async function tableNames(client: Client): Promise<string[]> {
  const { rows } = await client.execute(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
  );
  return rows.map((row) => row["name"] as string);
}

async function read(client: Client, table: string, columns: string[] = ["*"]): Promise<Table> {
  const found = await client.execute(`SELECT ${columns.join(", ")} FROM ${table} ORDER BY rowid`);
  return { columns: found.columns, rows: found.rows.map((row) => Array.from(row)) };
}

async function schemaOf(client: Client): Promise<unknown[][]> {
  const made = await client.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2");
  return made.rows.map((row) => Array.from(row));
}

async function migrationsOf(client: Client): Promise<unknown[][]> {
  const { rows } = await read(client, "__drizzle_migrations", ["hash", "created_at"]);
  return rows;
}

let fresh: TempStore;
beforeAll(async () => {
  fresh = await openTempStore();
});
afterAll(() => fresh.close());

describe.each(pasts)("a database of version %s", (past) => {
  const sql = readFileSync(join(folder, `${past}.sql`), "utf8");
  const answers = JSON.parse(sql.slice("-- ".length, sql.indexOf("\n"))) as Answers;
  const was = new Map<string, Table>();
  const clock = Math.max(...answers.executions.map((record) => Date.parse(record.created_at)));
  let now = clock;
  let place: string;
  let client: Client;
  let app: ReturnType<typeof createApp>;

  beforeAll(async () => {
    place = mkdtempSync(join(tmpdir(), "airlock-past-"));
    const old = createClient({ url: `file:${place}/airlock.db` });
    await old.executeMultiple(sql);
    for (const table of await tableNames(old)) {
      was.set(table, await read(old, table));
    }
    old.close();
    client = await openIn(place);
    const jobTypes = Object.fromEntries(answers.builds.map(({ job_type }) => [job_type, {}]));
    const config = loadConfig(
      { job_types: jobTypes, agent_tokens: [token], api_auth_enabled: true, api_keys: [apiKey] },
      {},
    );
    app = createApp(testDeps(database(client), place, () => now, config));
  });
  afterAll(() => {
    client.close();
    rmSync(place, { recursive: true });
  });

  async function ask(path: string): Promise<unknown> {
    const reply = await app.request(path, { headers: { "X-API-Key": apiKey } });
    expect(reply.status).toBe(200);
    return reply.json();
  }

  async function post(path: string, body: object): Promise<unknown> {
    const reply = await app.request(path, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${token}`,
        "X-API-Key": apiKey,
        "Content-Type": "application/json",
      },
      body: JSON.stringify(body),
    });
    expect([200, 202]).toContain(reply.status);
    return reply.json();
  }

  test("has the same migrations and the same schema as a new one", async () => {
    expect(await migrationsOf(client)).toEqual(await migrationsOf(fresh.db.client));
    expect(await schemaOf(client)).toEqual(await schemaOf(fresh.db.client));
  });

  test("keeps every row and every value", async () => {
    expect(was.get("executions")?.rows.length).toBeGreaterThan(10);
    for (const [table, { columns, rows }] of was) {
      // The rows of log_chunks are in output_chunks now: its records, below, show them as before.
      if (table === "__drizzle_migrations" || table === "log_chunks") continue;
      expect({ table, ...(await read(client, table, columns)) }).toEqual({ table, columns, rows });
    }
  });

  test("keeps its executions until its operator chooses otherwise", async () => {
    expect(await readDefaultRetention(database(client))).toBeUndefined();
    expect(await readDefaultRetention(fresh.db)).toBe(30);
  });

  test("is served with the same answers as before", async () => {
    const executions = await ask("/executions?view=full&limit=1000");
    expect(executions).toMatchObject({ items: answers.executions, has_more: false });
    expect(await ask("/dlq?limit=1000")).toMatchObject({ items: answers.deadLetters });
    expect(await ask("/dlq/stats")).toMatchObject({ total: answers.deadLetters.length });
    for (const build of answers.builds) {
      expect(await ask(`/job-types/${build.job_type}/build`)).toMatchObject(build);
    }
    for (const { execution_id: id, status, created_at, code_hash } of answers.executions) {
      expect(await ask(`/jobs/${id}`)).toMatchObject({ job_id: id, status, created_at });
      const code = await (
        await app.request(`/jobs/${id}/artifacts/_code.py`, { headers: { "X-API-Key": apiKey } })
      ).text();
      expect(createHash("sha256").update(code).digest("hex")).toBe(code_hash);
    }
  });

  test("continues: waiting jobs and jobs that lost their agent are run, and an idempotency key is still known", async () => {
    const open = answers.executions.filter(({ ended_at }) => ended_at === null);
    now = clock + 24 * 3_600_000;
    const agent = new ScriptedAgent("http://unused", token);
    const images = ["python:3.13-slim"];
    const request = agent.pollRequest({ images, free_slots: 10 });
    const { jobs } = (await post("/agent/v1/poll", request)) as PollReply;
    expect(jobs.map(({ execution_id: id }) => id).toSorted()).toEqual(
      open.map(({ execution_id: id }) => id).toSorted(),
    );
    for (const { lease_id } of jobs) await post(`/agent/v1/leases/${lease_id}/result`, success);
    for (const { execution_id } of open) {
      const record = await ask(`/executions/${execution_id}`);
      expect(record).toMatchObject({ status: "succeeded", exit_code: 0 });
    }

    const first = answers.executions.find((record) => record.idempotency_key === "answer-1")!;
    const again = { code: "print('hello')", input_data: { code: "print('hello')" }, timeout: 60 };
    const repeated = await post("/execute/async", { ...again, idempotency_key: "answer-1" });
    expect(repeated).toMatchObject({ job_id: first.execution_id, status: "succeeded" });
  });
});
