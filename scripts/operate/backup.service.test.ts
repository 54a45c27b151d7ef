import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createClient } from "@libsql/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";
import { runProgram } from "../../shared/testing/program.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { ExecutionPage } from "../../shared/wire/executions.ts";
import { SubmittedJob } from "../../shared/wire/submissions.ts";
import { jsonRequest } from "./command.ts";

const token = "agent-token-0123456789";
const vars = {
  AIRLOCK_AGENT_TOKENS: token,
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_MAX_QUEUE_SIZE: "100000",
};

const root = tempFolder();

/** Runs `npm run backup` or `npm run restore`. */
const run = (script: "backup" | "restore", args: string[], env: Record<string, string>) =>
  runProgram("scripts/operate/database.ts", [script, ...args], env);

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** A service under load: clients that submit, and an agent whose jobs each leave a file. */
class Load {
  readonly acknowledged: string[] = [];
  readonly ended: string[] = [];
  readonly #url: string;
  readonly #agent: ScriptedAgent;
  readonly #loops: Promise<void>[];
  #isOver = false;

  constructor(url: string) {
    this.#url = url;
    this.#agent = new ScriptedAgent(url, token);
    this.#loops = [this.#submit(), this.#submit(), this.#work()];
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
  }

  async #submit(): Promise<void> {
    while (!this.#isOver) {
      const reply = await fetch(
        `${this.#url}/execute/async`,
        jsonRequest("POST", { code: "print(1)" }),
      );
      this.acknowledged.push(SubmittedJob.parse(await reply.json()).job_id);
    }
  }

  async #work(): Promise<void> {
    while (!this.#isOver) {
      const { lease_id, execution_id } = await this.#agent.takeJob();
      await this.#agent.upload(lease_id, "file.txt", `of ${execution_id}`);
      await this.#agent.result(lease_id);
      this.ended.push(execution_id);
    }
  }
}

/** Every record of a service. */
async function records({ url }: NodeProcess) {
  const all = [];
  for (let offset = 0; ; offset += 1000) {
    const reply = await fetch(`${url}/executions?view=full&limit=1000&offset=${offset}`);
    const { items, has_more } = ExecutionPage.parse(await reply.json());
    all.push(...items);
    if (!has_more) return all;
  }
}

describe("a backup made while jobs arrive, run and leave files", () => {
  const before: { acknowledged: string[]; ended: string[] } = { acknowledged: [], ended: [] };
  // In a URL, these signs would mean something else.
  const place = (name: string): string => join(root, `50%, #1? ${name}`);
  let made: Awaited<ReturnType<typeof run>>;
  let back: typeof made;
  let endedInAll: number;
  let restored: NodeProcess;

  beforeAll(async () => {
    for (const name of ["backup", "new"]) mkdirSync(place(name), { mode: 0o755 });
    const api = await startNodeIn(place("data"), vars);
    const load = new Load(api.url);
    await waitUntil(
      "100 are acknowledged and 30 ended",
      () => load.acknowledged.length >= 100 && load.ended.length >= 30,
    );
    before.acknowledged.push(...load.acknowledged);
    before.ended.push(...load.ended);
    made = await run("backup", [place("backup")], { AIRLOCK_DATA_DIR: place("data") });
    await load.stop();
    await api.close();
    endedInAll = load.ended.length;
    back = await run("restore", [place("backup")], { AIRLOCK_DATA_DIR: place("new") });
    restored = await startNodeIn(place("new"), vars);
  });
  afterAll(() => restored?.close());

  test("says what it contains; work continued meanwhile", () => {
    expect([made, back]).toMatchObject([{ code: 0 }, { code: 0 }]);
    expect(made.said).toMatch(/\d+ executions and \d+ artifacts are in /);
    expect(made.said).not.toContain("lost");
    expect(back.said).toMatch(/\d+ executions and \d+ artifacts are back, as of 2/);
    expect(endedInAll).toBeGreaterThan(before.ended.length);
  });

  test("is readable by its user only, also in folders that were open", async () => {
    expect(openPaths(place("backup"))).toEqual([]);
    expect(openPaths(place("new"))).toEqual([]);
  });

  test("has every execution that was acknowledged before, and those that had ended as ended", async () => {
    const found = new Map((await records(restored)).map((r) => [r.execution_id, r.status]));
    expect(before.acknowledged.filter((id) => !found.has(id))).toEqual([]);
    expect(before.ended.filter((id) => found.get(id) !== "succeeded")).toEqual([]);
  });

  test("has the bytes of every artifact that a record names", async () => {
    const named = (await records(restored)).flatMap(({ execution_id: id, artifacts = [] }) =>
      artifacts.map(({ name, sha256 }) => ({ id, name, sha256 })),
    );
    expect(named.length).toBeGreaterThanOrEqual(before.ended.length);
    for (const { id, name, sha256: announced } of named) {
      const reply = await fetch(`${restored.url}/jobs/${id}/artifacts/${name}`);
      expect(sha256(new Uint8Array(await reply.arrayBuffer()))).toBe(announced);
    }
  });

  test("is a sound database on which work continues", async () => {
    const client = createClient({ url: pathToFileURL(join(place("new"), "airlock.db")).href });
    const { rows } = await client.execute("PRAGMA integrity_check");
    client.close();
    expect(rows[0]?.[0]).toBe("ok");
    const load = new Load(restored.url);
    await waitUntil("one has ended", () => load.ended.length > 0);
    await load.stop();
  });

  test("is never overwritten, and never overwrites data", async () => {
    const env = { AIRLOCK_DATA_DIR: place("new") };
    const again = await run("backup", [place("backup")], env);
    expect(again).toMatchObject({ code: 1 });
    expect(again.said).toMatch(/backup is not empty: name a new folder/);
    const over = await run("restore", [place("backup")], env);
    expect(over).toMatchObject({ code: 1 });
    expect(over.said).toMatch(/airlock\.db is there already: stop the service and move its data/);
  });

  test("that was not completed is refused", async () => {
    rmSync(join(place("backup"), "backup.json"));
    const env = { AIRLOCK_DATA_DIR: place("other") };
    const { code, said } = await run("restore", [place("backup")], env);
    expect(code).toBe(1);
    expect(said).toMatch(/no whole backup is there/);
    expect(existsSync(join(place("other"), "airlock.db"))).toBe(false);
  });
});

test("a damaged copy is not restored", async () => {
  const [data, copy, target] = ["sound", "damaged", "target"].map((name) => join(root, name));
  const api = await startNodeIn(data!, vars);
  await api.close();
  expect(await run("backup", [copy!], { AIRLOCK_DATA_DIR: data! })).toMatchObject({ code: 0 });
  writeFileSync(join(copy!, "airlock.db"), "this is no database\n".repeat(1000));
  const { code } = await run("restore", [copy!], { AIRLOCK_DATA_DIR: target! });
  expect(code).toBe(1);
  expect(readdirSync(target!)).not.toContain("airlock.db");
});

test.each<[string, "backup" | "restore", string[], Record<string, string>, RegExp]>([
  ["no folder", "backup", [], {}, /npm run backup -- --help/],
  ["no folder to restore", "restore", [], {}, /npm run restore -- --help/],
  ["a database that is not there", "backup", ["x"], { AIRLOCK_DATA_DIR: "none" }, /no database/],
  [
    "a database on a server",
    "backup",
    ["x"],
    { AIRLOCK_DATABASE_URL: "http://127.0.0.1:1" },
    /is on a libSQL server/,
  ],
])("%s is refused in words", async (_what, script, args, env, words) => {
  mkdirSync(join(root, "words"), { recursive: true });
  const folder = args.map((name) => join(root, "words", name));
  const { code, said } = await run(script, folder, env);
  expect(code).not.toBe(0);
  expect(said).toMatch(words);
  expect(said).not.toContain("    at ");
});

/** A folder and all in it on which other users have rights, each with its mode. */
function openPaths(folder: string): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return [folder, ...names.map((name) => join(folder, name))]
    .map((path) => ({ path, mode: statSync(path, { throwIfNoEntry: false })?.mode ?? 0 }))
    .filter(({ mode }) => (mode & 0o077) !== 0)
    .map(({ path, mode }) => `${path} ${(mode & 0o777).toString(8)}`);
}
