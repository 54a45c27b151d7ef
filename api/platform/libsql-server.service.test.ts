import { join } from "node:path";
import { setImmediate as nextTick, setTimeout as sleep } from "node:timers/promises";
import type { Client, InStatement, ResultSet } from "@libsql/client";
import { getLogger } from "@logtape/logtape";
import Libsql from "libsql";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { Config } from "../../shared/config/config.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { createApp } from "../app.ts";
import type { Notifier } from "../deps.ts";
import { database, isStoreOutage } from "../store/database.ts";
import { answerWith, type Fault, faults, startDatabaseProxy } from "../testing/database-proxy.ts";
import { reservePort } from "../testing/reserve-port.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { type RunningDatabase, startEmptySqld, startSqld } from "../testing/start-stores.ts";
import { testDeps } from "../testing/temp-store.ts";
import { postByFetch, serverClient } from "./libsql-server.ts";
import { pollingNotifier } from "./notifier.ts";
import { fileClient, openDatabase, postByUndici } from "./sqlite.node.ts";

let folder: string;
let port: number;
let sqld: RunningDatabase;
let proxy: Awaited<ReturnType<typeof startDatabaseProxy>>;
beforeAll(async () => {
  folder = tempFolder();
  port = await reservePort();
  sqld = await startEmptySqld(folder, port);
  proxy = await startDatabaseProxy(sqld.url);
});
afterAll(async () => {
  await proxy[Symbol.asyncDispose]();
  await sqld.close();
});

const posts = { undici: postByUndici, fetch: postByFetch };
const clientOfServer = (url = sqld.url, timeoutMs = 60_000, by = postByUndici): Client =>
  serverClient({ url, post: by(timeoutMs), nextTick });

const tables = [
  "DROP TABLE IF EXISTS child",
  "DROP TABLE IF EXISTS t",
  "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, data BLOB)",
];
const insert = (name: string | null, data: Uint8Array | null = null): InStatement => ({
  sql: "INSERT INTO t (name, data) VALUES (?, ?)",
  args: [name, data],
});
const names = async (client: Client): Promise<unknown[]> =>
  (await client.execute("SELECT name FROM t ORDER BY id")).rows.map((row) => row["name"]);

const drivers: Record<string, () => Client> = {
  "a file": () => fileClient(`file:${tempFolder()}/a.db`),
  "a server": () => clientOfServer(),
};

/** What store and drizzle rely on, whichever database there is. */
describe.each(Object.entries(drivers))("the client of %s", (_, open) => {
  let client: Client;
  beforeEach(async () => {
    client = open();
    for (const each of tables) await client.execute(each);
  });
  afterEach(() => client.close());

  test("values come back as they were given, by name and by position", async () => {
    const given = [null, 1, 1.5, "ä\n", new Uint8Array([0, 255]), 2n, true];
    const sql = "SELECT ? AS a, ? AS b, ? AS c, ? AS d, ? AS e, ? AS f, ? AS g, typeof(?) AS h";
    const { rows, columns } = await client.execute({ sql, args: [...given, 1] });
    const [row] = rows;
    expect(Array.from(row as unknown as ArrayLike<unknown>)).toEqual([
      null,
      1,
      1.5,
      "ä\n",
      new Uint8Array([0, 255]).buffer,
      2,
      1,
      "real",
    ]);
    expect(row!["d"]).toBe("ä\n");
    expect(columns).toEqual(["a", "b", "c", "d", "e", "f", "g", "h"]);
  });

  test("a statement tells what it changed and returned", async () => {
    const [first, second] = await Promise.all([
      client.execute(insert("a")),
      client.batch([insert("b"), "UPDATE t SET name = name || '1' RETURNING name", "SELECT 1"]),
    ]);
    expect(first).toMatchObject({ rowsAffected: 1, lastInsertRowid: 1n });
    expect(second.map(({ rowsAffected }) => rowsAffected)).toEqual([1, 2, 0]);
    expect(second[1]!.rows.map(({ name }) => name)).toEqual(["a1", "b1"]);
  });

  test("a write is all or nothing, and every second one is refused alone with its own error", async () => {
    await client.execute(insert("taken"));
    const asked = Array.from({ length: 20 }, (_, n) => {
      const [own, other] = [`own-${n}`, n % 2 === 0 ? `other-${n}` : "taken"];
      return n % 4 < 2
        ? client.batch([insert(own), insert(other)], "write")
        : client.execute(insert(other));
    });
    const told = await Promise.allSettled(asked);
    const refused = { reason: { code: "SQLITE_CONSTRAINT" } };
    expect(told).toMatchObject(
      told.map((_each, n) => (n % 2 === 0 ? { status: "fulfilled" } : refused)),
    );
    const expected = Array.from({ length: 10 }, (_, half) => half * 2).flatMap((n) =>
      n % 4 < 2 ? [`own-${n}`, `other-${n}`] : [`other-${n}`],
    );
    expect(await names(client)).toEqual(["taken", ...expected]);
  });

  test("a statement that cannot be parsed fails alone", async () => {
    const told = await Promise.allSettled([
      client.execute(insert("a")),
      client.batch(["INSERT bogus", insert("x")], "write"),
      client.execute("SELECT bogus bogus bogus"),
      client.execute("SELECT 1"),
      client.execute(insert("b")),
    ]);
    expect(told.map(({ status }) => status)).toEqual([
      "fulfilled",
      "rejected",
      "rejected",
      "fulfilled",
      "fulfilled",
    ]);
    expect(told.some((each) => isStoreOutage((each as PromiseRejectedResult).reason))).toBe(false);
    expect(await names(client)).toEqual(["a", "b"]);
  });

  test("if SQLite refuses the commit, nothing is stored, and the next write is", async () => {
    await client.execute("PRAGMA foreign_keys = ON");
    await client.execute(
      "CREATE TABLE child (parent INTEGER REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED)",
    );
    const told = await Promise.allSettled([
      client.execute(insert("a")),
      client.batch([insert("b"), "INSERT INTO child VALUES (99)"], "write"),
    ]);
    expect(told).toMatchObject([0, 1].map(() => ({ reason: { code: "SQLITE_CONSTRAINT" } })));
    await client.execute(insert("c"));
    expect(await names(client)).toEqual(["c"]);
  });

  test("a statement that ends the transaction leaves nothing of the writes beside it", async () => {
    await client.execute(insert("taken"));
    const told = await Promise.allSettled([
      client.execute(insert("a")),
      client.execute("INSERT OR ROLLBACK INTO t (name) VALUES ('taken')"),
      client.execute(insert("b")),
      client.batch([insert("c"), insert("d")], "write"),
    ]);
    expect(told).toMatchObject(told.map(() => ({ reason: { code: "SQLITE_CONSTRAINT" } })));
    await client.execute(insert("e"));
    expect(await names(client)).toEqual(["taken", "e"]);
  });

  test("each reader sees its own writes, and those of others in order", async () => {
    const reader = async (who: number): Promise<void> => {
      for (let n = 0; n < 10; n++) {
        await client.execute(insert(`${who}-${n}`));
        const { rows } = await client.execute(`SELECT name FROM t WHERE name LIKE '${who}-%'`);
        expect(rows).toHaveLength(n + 1);
        const all = await names(client);
        for (const other of [0, 1, 2, 3]) {
          const own = all.filter((name) => String(name).startsWith(`${other}-`));
          expect(own).toEqual(own.map((_, m) => `${other}-${m}`));
        }
      }
    };
    await Promise.all([0, 1, 2, 3].map(reader));
  });

  test.each([1, Date.now()])(
    "writes in random company (seed %i) do what a second connection does one by one",
    async (seed) => {
      let state = seed >>> 0;
      const random = (below: number): number => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return Math.floor((state / 2 ** 32) * below);
      };
      const name = () => `n${random(30)}`;
      const kinds: (() => InStatement)[] = [
        () => insert(random(10) === 0 ? null : name()),
        () => ({ sql: "INSERT INTO t (name) VALUES (?) RETURNING id", args: [name()] }),
        () => ({ sql: "UPDATE t SET name = ? WHERE name = ?", args: [name(), name()] }),
        () => ({ sql: "DELETE FROM t WHERE name = ? RETURNING id, name", args: [name()] }),
        () => ({
          sql: "INSERT OR IGNORE INTO t (name) SELECT ? WHERE changes() > 0",
          args: [name()],
        }),
      ];
      const shown = ({ rows, rowsAffected }: ResultSet) => ({
        rowsAffected,
        rows: rows.map((row) => Array.from(row as unknown as ArrayLike<unknown>)),
      });
      const tell = (asked: Promise<ResultSet[]>) =>
        asked.then(
          (results) => results.map(shown),
          ({ code }: { code: string }) => code,
        );
      const calls: InStatement[][] = [];
      const told: ReturnType<typeof tell>[] = [];
      for (let n = 0; n < 300; n++) {
        // `changes()` is of the statement before it, in the same write.
        const made = kinds[random(4)]!();
        const statements =
          random(3) === 0
            ? [made, ...Array.from({ length: random(3) }, () => kinds[random(5)]!())]
            : [made];
        calls.push(statements);
        told.push(tell(client.batch(statements, "write")));
        if (random(15) === 0) await told.at(-1);
      }
      const other = fileClient(`file:${tempFolder()}/b.db`);
      for (const each of tables) await other.execute(each);
      for (const [n, statements] of calls.entries()) {
        const alone = await tell(other.batch(statements, "write"));
        expect({ n, statements, told: await told[n] }).toEqual({ n, statements, told: alone });
      }
      const all = "SELECT id, name FROM t ORDER BY id";
      expect(shown(await client.execute(all))).toEqual(shown(await other.execute(all)));
      other.close();
    },
  );

  test("no small write waits longer than twice a write of 60 MiB beside it", async () => {
    const timed = async (work: Promise<unknown>): Promise<number> => {
      const beganAt = performance.now();
      await work;
      return performance.now() - beganAt;
    };
    // A server refuses single values of 10 MiB.
    const data = new Uint8Array(4 * 1024 * 1024).fill(7);
    const pieces = Array.from({ length: 15 }, (_, n) => insert(`large-${n}`, data));
    const large = timed(client.batch(pieces, "write"));
    const small = [0, 1, 2].map(async (n) => {
      await sleep(n * 50);
      return timed(client.execute(insert(`small-${n}`)));
    });
    const largeMs = await large;
    for (const ms of await Promise.all(small)) expect(ms).toBeLessThan(2 * largeMs);
    const { rows } = await client.execute("SELECT sum(length(data)) AS n FROM t");
    expect(rows[0]!["n"]).toBe(60 * 1024 * 1024);
  });
});

describe("a server's faults", () => {
  let client: Client;
  beforeEach(async () => {
    client = clientOfServer(proxy.url);
    for (const each of tables) await client.execute(each);
    proxy.sent.length = 0;
  });

  test("writes and reads that wait share requests", async () => {
    const writes = Array.from({ length: 20 }, (_, n) => client.execute(insert(`w${n}`)));
    const reads = Array.from({ length: 20 }, () => client.execute("SELECT 1"));
    await Promise.all([...writes, ...reads]);
    expect(proxy.sent).toHaveLength(2);
  });

  /** Sends three writes, of which the second is refused, and returns what each was told. */
  async function writeThree(name: string) {
    const asked = [
      client.execute(insert(`${name}-1`)),
      client.batch([insert(`${name}-2`), insert(null)], "write"),
      client.batch([insert(`${name}-3`), insert(`${name}-4`)], "write"),
    ];
    return (await Promise.allSettled(asked)).map((each) => {
      if (each.status === "fulfilled") return "committed";
      return isStoreOutage(each.reason) ? "unknown" : "refused";
    });
  }
  const committed = ["committed", "refused", "committed"];
  const unknown = ["unknown", "unknown", "unknown"];
  const stored = ["x-1", "x-3", "x-4"];

  test.each<[string, Fault, string[], string[], by?: keyof typeof posts]>([
    ["loses the answer", faults.lost, unknown, stored],
    ["resets the connection", faults.reset, unknown, []],
    ["sends half an answer", faults.half, unknown, stored],
    ["takes 5 s", faults.slow, committed, stored],
    ["refuses with 429 once", faults.busy, committed, stored],
    ["loses the answer to fetch", faults.lost, unknown, stored, "fetch"],
    ["resets the connection of fetch", faults.reset, unknown, [], "fetch"],
    ["sends half an answer to fetch", faults.half, unknown, stored, "fetch"],
  ])("that %s: each write is told its outcome", async (_, fault, told, left, by = "undici") => {
    client = clientOfServer(proxy.url, 60_000, posts[by]);
    proxy.fail("BEGIN IMMEDIATE", fault);
    expect(await writeThree("x")).toEqual(told);
    expect(await names(client)).toEqual(left);
    expect(await writeThree("y")).toEqual(committed);
  });

  test("that refuses with 429 for long: nothing is stored, and reads are told as well", async () => {
    const url = proxy.url;
    for (let n = 0; n < 1000; n++) proxy.fail("", faults.busy);
    expect(await writeThree("x")).toEqual(unknown);
    await expect(names(client)).rejects.toSatisfy(isStoreOutage);
    await proxy[Symbol.asyncDispose]();
    proxy = await startDatabaseProxy(sqld.url);
    expect(url).not.toBe(proxy.url);
    expect(await names(clientOfServer())).toEqual([]);
  });

  test.each<[string, Fault, keyof typeof posts]>([
    ["begins its answer after the limit", faults.slow, "undici"],
    ["stops within its answer", faults.stalled, "undici"],
    ["stops within its answer to fetch", faults.stalled, "fetch"],
  ])("that %s: the outcome is unknown", async (_, fault, by) => {
    client = clientOfServer(proxy.url, 1000, posts[by]);
    proxy.fail("BEGIN IMMEDIATE", fault);
    expect(await writeThree("x")).toEqual(unknown);
    const later = () => names(clientOfServer());
    await expect.poll(later, { timeout: 10_000 }).toEqual(stored);
  });

  test("whose database another process has locked: writes wait for it, at most for a while", async () => {
    const other = new Libsql(join(folder, "dbs/default/data"));
    other.exec("BEGIN IMMEDIATE");
    const waiting = writeThree("x");
    await sleep(200);
    other.exec("ROLLBACK");
    other.close();
    expect(await waiting).toEqual(committed);
    expect(await names(client)).toEqual(stored);
  });

  type Pass = () => Promise<unknown>;
  const nothing: string[] = [];
  test.each([
    ["before it gets the writes", [nothing], async () => {}],
    [
      "while it runs them",
      [nothing, stored],
      async (pass: Pass) => {
        pass().catch(() => {});
        await sleep(Math.random() * 5);
      },
    ],
    ["after the commit", [stored], async (pass: Pass) => void (await pass())],
  ])("that is killed %s: what it has stored is whole", async (_, possible, until) => {
    await client.execute(insert("before"));
    proxy.fail("BEGIN IMMEDIATE", async (response, pass) => {
      await until(pass);
      await sqld.close();
      response.destroy();
    });
    expect(await writeThree("x")).toEqual(unknown);
    sqld = await startEmptySqld(folder, port);
    expect(possible).toContainEqual((await names(client)).slice(1));
    expect(await writeThree("y")).toEqual(committed);
  });
});

describe("over a server, a poll that waits is woken while a job is being stored", () => {
  const token = "a-token-of-16-characters";
  const most = 12;

  /** The service in this process, where a poll is only woken by submissions: no time and no other process wakes it. */
  async function startService() {
    const store = await startSqld(join(tempFolder(), "db"));
    const wire = await startDatabaseProxy(store.url);
    const client = clientOfServer(wire.url);
    const config = { agent_tokens: [token], api_rate_limit_enabled: false };
    const plain = testDeps(database(client), tempFolder(), Date.now, config);
    const never = () => new Promise<never>(() => {});
    const polling = pollingNotifier(never, getLogger(["airlock", "test"]));
    let waiting = 0;
    const notifier: Notifier = {
      ...polling,
      subscribe(topics) {
        const subscription = polling.subscribe(topics);
        const next: typeof subscription.next = async (_timeoutMs, signal) => {
          waiting++;
          return subscription.next(600_000, signal).finally(() => waiting--);
        };
        return { ...subscription, next };
      },
    };
    const app = createApp({ ...plain, notifier });
    const agents = Array.from({ length: most }, () => new ScriptedAgent(app, token));
    return {
      client,
      wire,
      /** Starts a poll of so many agents, and returns when all wait. */
      async poll(count: number) {
        const images = [plain.config.base_image];
        const polls = agents
          .slice(0, count)
          .map((agent) => agent.poll({ images, free_slots: 1, wait_s: 15 }));
        await expect.poll(() => waiting, { timeout: 60_000 }).toBe(count);
        return polls.map(async (poll) => (await poll).jobs.map((job) => job.execution_id));
      },
      submit: async (): Promise<string> => {
        const headers = { "Content-Type": "application/json" };
        const asked = { method: "POST", headers, body: '{"code":"print(1)"}' };
        const reply = await app.request("/execute/async", asked);
        return ((await reply.json()) as { job_id: string }).job_id;
      },
      async [Symbol.asyncDispose]() {
        await wire[Symbol.asyncDispose]();
        await store.close();
      },
    };
  }

  /** Passes the next insert on when the poll that was woken for it has long begun to ask. */
  function holdInsert({ wire: { fail, sent } }: Awaited<ReturnType<typeof startService>>): void {
    sent.length = 0;
    fail(insertOfJob, async (response, pass) => {
      while (!sent.join("").includes("agent_tokens")) await sleep(5);
      await sleep(100);
      answerWith(response, await pass());
    });
  }
  const insertOfJob = 'insert into \\"executions\\"';
  const claimOfJob = 'set \\"status\\" = ?';

  test("its claim comes behind the insert, and leases the job", async () => {
    await using service = await startService();
    const [taken] = await service.poll(1);
    holdInsert(service);
    const id = await service.submit();
    expect(await taken).toEqual([id]);
    const sent = service.wire.sent.join("");
    expect(sent.split(claimOfJob)).toHaveLength(2);
    expect(sent.indexOf(insertOfJob)).toBeLessThan(sent.indexOf(claimOfJob));
  });

  test.each([
    ["one after the other", Array.from({ length: most }, () => 1)],
    ["in two bursts", [5, most - 5]],
    ["all at once", [most]],
  ])("jobs %s: each is leased once, and each poll gets one", async (_, bursts) => {
    await using service = await startService();
    const polls = await service.poll(most);
    const ids: string[] = [];
    for (const jobs of bursts) {
      holdInsert(service);
      ids.push(...(await Promise.all(Array.from({ length: jobs }, service.submit))));
    }
    const taken = await Promise.all(polls);
    expect(taken.map((jobs) => jobs.length)).toEqual(polls.map(() => 1));
    expect(taken.flat().toSorted()).toEqual(ids.toSorted());
    const { rows } = await service.client.execute("SELECT status, attempt FROM executions");
    expect(rows).toMatchObject(ids.map(() => ({ status: "running", attempt: 1 })));
  });
});

test("what is larger than a row of the server may be is refused for good: an agent then posts its result without it", async () => {
  const token = "a-token-of-16-characters";
  const store = await startSqld(join(tempFolder(), "db"));
  onTestFinished(() => store.close());
  const client = clientOfServer(store.url);
  const config = { agent_tokens: [token] };
  const app = createApp(testDeps(database(client), tempFolder(), Date.now, config));
  const submit = async (code: string): Promise<number> =>
    (await app.request("/execute/async", jsonRequest("POST", { code }))).status;
  const large = "#".repeat(5_100_000);
  expect(await submit(large)).toBe(413);
  expect(await submit("1")).toBe(202);
  const agent = new ScriptedAgent(app, token);
  const { lease_id } = await agent.takeJob();
  const output_json = JSON.stringify({ large });
  expect((await agent.result(lease_id, { output_json })).status).toBe(413);
  expect((await agent.result(lease_id)).status).toBe(200);
});

test("processes that start at once on an empty server all find its schema up to date", async () => {
  const empty = await startEmptySqld(tempFolder());
  onTestFinished(() => empty.close());
  const config = Config.parse({ database_url: empty.url });
  const clients = await Promise.all([1, 2, 3].map(() => openDatabase(config)));
  for (const client of clients) {
    const { rows } = await client.execute("SELECT count(*) AS n FROM executions");
    expect(rows[0]?.["n"]).toBe(0);
    client.close();
  }
});
