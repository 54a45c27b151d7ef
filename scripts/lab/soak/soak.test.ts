import type { Client } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openDatabase } from "../../../api/platform/sqlite.node.ts";
import { Config } from "../../../shared/config/config.ts";
import { tempFolder } from "../../../shared/testing/test-file.ts";
import { checkLedger, startAudit } from "../../testing/ledger.ts";
import { faultKinds, makePlan, partsOf } from "./plan.ts";

const hourMs = 3_600_000;
const parts = partsOf.servers;

test("equal seeds make equal plans, and different ones different plans", () => {
  expect(makePlan(7, hourMs, 12_000, parts)).toEqual(makePlan(7, hourMs, 12_000, parts));
  expect(makePlan(7, hourMs, 12_000, parts)).not.toEqual(makePlan(8, hourMs, 12_000, parts));
});

test("an hour has every kind of fault on every part, and never two at once on one part", () => {
  const plan = makePlan(1, hourMs, 12_000, parts);
  const partOf = new Map(faultKinds.map(({ name, part }) => [name, part]));
  for (const { name, part } of faultKinds) {
    const befallen = new Set(plan.filter(({ kind }) => kind === name).map(({ on }) => on));
    expect([name, befallen.size]).toEqual([name, parts[part]]);
  }
  const mendedMs = new Map<string, number>();
  for (const { atMs, kind, on, forMs } of plan) {
    const part = `${partOf.get(kind)} ${on}`;
    expect(atMs).toBeGreaterThan(mendedMs.get(part) ?? 0);
    mendedMs.set(part, atMs + forMs);
  }
});

describe("ledger", () => {
  let folder: string;
  let db: Client;
  beforeEach(async () => {
    folder = tempFolder();
    db = await openDatabase(Config.parse({ data_dir: folder }));
    await startAudit(db);
    await submitted("good");
    await leased("good");
    await ended("good", "succeeded");
  });
  afterEach(() => db.close());

  async function submitted(id: string): Promise<void> {
    await db.batch([
      {
        sql: `INSERT INTO executions (id, mode, job_type, timeout_s, startup_timeout_s, requirements, available_at,
        created_at, code_hash, input_hash, code_bytes, input_bytes, submitted_bytes, submission_hash, correlation_id, client_ip)
        VALUES (?, 'async', 'default', 30, 60, '[]', 0, 0, 'c', 'i', 1, 2, 3, 's', 'k', '::1')`,
        args: [id],
      },
      { sql: "INSERT INTO payloads (execution_id, code, input) VALUES (?, 'c', '{}')", args: [id] },
    ]);
  }

  async function leased(id: string): Promise<void> {
    await db.execute({
      sql: `UPDATE executions SET status = 'running', attempt = attempt + 1, lease_id = ? || attempt,
      agent_id = 'a', lease_expires_at = 1, started_at = 0 WHERE id = ?`,
      args: [id, id],
    });
  }

  async function ended(id: string, status: string): Promise<void> {
    const error = `{"type":"value_error","message":"","phase":"execution"}`;
    await db.batch([
      { sql: "UPDATE payloads SET stdout = 'out' WHERE execution_id = ?", args: [id] },
      {
        sql: `UPDATE executions SET status = ?, ended_at = 1, output_bytes = 3, lease_expires_at = NULL, error = ? WHERE id = ?`,
        args: [status, status === "succeeded" ? null : error, id],
      },
    ]);
  }

  const good = { id: "good", ends: ["succeeded"], stdout: "out" };

  test("consistent books have no faults", async () => {
    await submitted("bad");
    await leased("bad");
    await ended("bad", "failed");
    const bad = { id: "bad", ends: ["failed/value_error"] };
    expect(await checkLedger(db, [good, bad])).toEqual({
      acknowledged: 2,
      ended: new Map([
        ["succeeded", 1],
        ["failed/value_error", 1],
      ]),
      deadLetters: 1,
      retried: 0,
      faults: [],
    });
  });

  test("leases that an agent gave back before the code started are no attempts", async () => {
    await submitted("back");
    for (let n = 0; n < 3; n++) {
      await leased("back");
      await db.execute(`UPDATE executions SET status = 'queued', attempt = attempt - 1, lease_id = NULL,
        agent_id = NULL, lease_expires_at = NULL, started_at = NULL WHERE id = 'back'`);
    }
    await leased("back");
    await ended("back", "succeeded");
    expect((await checkLedger(db, [good, { ...good, id: "back" }])).faults).toEqual([]);
  });

  test.each<[what: string, fault: RegExp, change: () => Promise<unknown>]>([
    ["one that has not ended", /^open has not ended: queued$/, () => submitted("open")],
    [
      "one that changed after its end",
      /^good changed after its end: succeeded$/,
      () => db.execute("UPDATE executions SET exit_code = 1 WHERE id = 'good'"),
    ],
    [
      "one that ended twice",
      /^good did not end exactly once: 2$/,
      () => db.execute("INSERT INTO ledger (execution_id, became) VALUES ('good', 'succeeded')"),
    ],
    [
      "a lease too many",
      /^good has another count of attempts than of leases: 1$/,
      () => db.execute("INSERT INTO ledger (execution_id, became) VALUES ('good', 'running')"),
    ],
    [
      "a dead letter that is missing",
      /^dead is missing among the dead letters, or there twice: 0$/,
      async () => {
        await submitted("dead");
        await leased("dead");
        await ended("dead", "failed");
        await db.execute("DELETE FROM dead_letters");
      },
    ],
    [
      "a dead letter that should not be",
      /^good is a dead letter and should not be: async succeeded$/,
      () =>
        db.execute(
          "INSERT INTO dead_letters (execution_id, error_type, created_at) VALUES ('good', '', 0)",
        ),
    ],
    [
      "a count that is off",
      /^succeeded is counted otherwise than it ended: 1$/,
      () => db.execute("UPDATE counts SET n = n + 1 WHERE name = 'executions'"),
    ],
    [
      "a count of a tenant that is off",
      /^default uses other than its rows say: \[0,0,1,0,/,
      () => db.execute("UPDATE tenants SET running = running + 1"),
    ],
  ])("%s is found", async (_what, fault, change) => {
    await change();
    const { faults } = await checkLedger(db, [good]);
    expect(faults).toContainEqual(expect.stringMatching(fault));
  });

  test.each([
    [{ id: "gone", ends: [] }, "gone was acknowledged and is missing"],
    [{ ...good, ends: ["oom/oom"] }, "good ended as succeeded at attempt 1, and should as oom/oom"],
    [{ ...good, stdout: "other" }, `good printed "out", and should have "other"`],
  ])("acknowledged jobs are compared with the books: %o", async (acknowledged, fault) => {
    expect((await checkLedger(db, [acknowledged])).faults).toEqual([fault]);
  });
});
