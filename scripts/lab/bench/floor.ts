// The process of the bench's floor: the least that a service pays for a hello in this language, on these libraries.
import { closeSync, fdatasync, openSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import Database from "libsql";

/**
 * Submit, lease and result through Hono and libsql: three transactions on a table with five indexes, commits shared by
 * what is written in one turn of the event loop, and on disk before a client is answered. There is no validation, no
 * identity, no tenant, no limit, no retry and no log: nothing that a service must have.
 */
const path = join(process.argv[2]!, "floor.db");
const db = new Database(path);
db.exec(`pragma journal_mode = wal; pragma synchronous = normal;
  create table executions (seq integer primary key, id text unique, status text, job_type text, rank integer,
    created_at integer, agent_id text, lease_id text unique, code text, stdout text);
  create index waiting on executions (job_type, rank, seq) where status = 'queued';
  create index leased on executions (agent_id) where status = 'running';
  create index made on executions (created_at)`);
const insert = db.prepare(
  "insert into executions (id, status, job_type, rank, created_at, code) values (?, 'queued', 'default', 0, ?, ?)",
);
const claim = db.prepare(
  `update executions set status = 'running', agent_id = 'a', lease_id = ? where seq = (select seq from executions
   where status = 'queued' and job_type = 'default' order by rank, seq limit 1) returning id, lease_id, code`,
);
const finish = db.prepare(
  "update executions set status = 'succeeded', stdout = ? where lease_id = ? returning id",
);

let group: (() => void)[] = [];
/** Runs a write in the transaction that it shares with those of the same turn. */
function write<T>(run: () => T): Promise<T> {
  return new Promise((resolve) => {
    const isFirst = group.push(() => resolve(run())) === 1;
    if (!isFirst) return;
    setImmediate(() => {
      const all = group;
      group = [];
      db.exec("begin immediate");
      for (const one of all) one();
      db.exec("commit");
    });
  });
}

const log = openSync(`${path}-wal`, "r");
const sync = promisify(fdatasync);
let last = Promise.resolve();
let next: Promise<void> | undefined;
/** Resolves after an fdatasync that begins after this call: one that runs may have missed the caller's commit. */
function durable(): Promise<void> {
  next ??= last = last.then(() => {
    next = undefined;
    return sync(log);
  });
  return next;
}

const polls: (() => void)[] = [];
const clients = new Map<string, (stdout: string) => void>();
const app = new Hono();
app.post("/execute", async (c) => {
  const { code } = await c.req.json<{ code: string }>();
  const id = crypto.randomUUID();
  const ended = new Promise<string>((resolve) => clients.set(id, resolve));
  await write(() => insert.run(id, Date.now(), code));
  polls.shift()?.();
  const stdout = await ended;
  await durable();
  return c.json({ id, success: true, stdout });
});
app.post("/poll", async (c) => {
  await c.req.json();
  for (;;) {
    const [job] = await write(() => claim.all(crypto.randomUUID()));
    if (job) return c.json(job);
    await new Promise<void>((resolve) => polls.push(resolve));
  }
});
app.post("/result", async (c) => {
  const { lease_id, stdout } = await c.req.json<{ lease_id: string; stdout: string }>();
  const [ended] = await write(() => finish.all(stdout, lease_id) as { id: string }[]);
  clients.get(ended!.id)?.(stdout);
  clients.delete(ended!.id);
  return c.json({});
});
const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) =>
  process.send?.(`http://127.0.0.1:${port}`),
);
process.once("disconnect", () => {
  server.close();
  closeSync(log);
  process.exit();
});
