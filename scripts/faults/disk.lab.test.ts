import { globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { agentName, startFaultWorld } from "../testing/fault-world.ts";
import { makeSmallDisk, type SmallDisk } from "../testing/small-disk.ts";
import { needs } from "../testing/needs.ts";
import { makeCodeSignal } from "../../agent/sandbox/testing/code-signal.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

let folder: string;
let disk: SmallDisk;
const signal = makeCodeSignal();

describe("fault 10: a full disk", needs("root"), () => {
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "airlock-disk-"));
    disk = makeSmallDisk(join(folder, "disk"), 32);
  });
  afterEach(() => {
    disk[Symbol.dispose]();
    rmSync(folder, { recursive: true });
  });

  const writes = `
open("file.bin", "wb").write(b"x" * 300_000)
`;
  const writesThenWaits = `${writes}${signal.wait}`;

  test("under the API: submissions are 503, and acknowledged jobs end", async () => {
    await using world = await startFaultWorld(
      { AIRLOCK_LEASE_TTL_S: "60" },
      join(disk.path, "data"),
    );
    const agent = agentName("roomy");
    await world.startAgent(agent, { AIRLOCK_SPOOL_DIR: join(folder, "spool") });
    const id = await world.submit(writesThenWaits);
    await world.untilBegun(id);
    disk.fill();
    const body = { code: "print(1)", input_data: { pad: "x".repeat(100_000) } };
    for (const path of ["/execute", "/execute/async"]) {
      const refused = await world.send("POST", path, body);
      expect(refused.status).toBe(503);
      expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
      expect(refused.json).toMatchObject({ error: { type: "service_unavailable" } });
    }
    expect((await world.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "running" });
    // The code has ended once its file is on its way, which the API refuses.
    await signal.sendTo(agent);
    const spool = () => globSync(`${folder}/spool/**/*`, { withFileTypes: true });
    await waitUntil("a file is on its way", () => spool().some((at) => at.isFile()));
    expect((await world.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "running" });

    disk.free();
    expect(await world.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
    });
    expect((await world.send("GET", "/executions")).json).toMatchObject({ count: 1 });
    const ledger = await world.ledger([{ id, ends: ["succeeded"] }]);
    expect(ledger).toMatchObject({ retried: 0, faults: [] });
  });

  test("under the agent, while code runs: it runs again once there is room", async () => {
    await using world = await startFaultWorld();
    const agent = agentName("filled");
    await world.startAgent(agent, { AIRLOCK_SPOOL_DIR: disk.path });
    const id = await world.submit(writesThenWaits);
    await world.untilBegun(id);
    disk.fill();
    await signal.sendTo(agent);
    const status = async () => (await world.send("GET", `/jobs/${id}`)).json["status"];
    await waitUntil("the attempt fails", async () => (await status()) !== "running");
    expect(await status()).toBe("queued");
    disk.free();
    await world.untilBegun(id, 2);
    await signal.sendTo(agent);
    expect(await world.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
    });
    expect(await world.ledger([{ id, ends: ["succeeded"] }])).toMatchObject({
      retried: 1,
      faults: [],
    });
  });

  test("under the agent: it leases nothing until there is room again", async () => {
    await using world = await startFaultWorld();
    await world.startAgent(agentName("cramped"), { AIRLOCK_SPOOL_DIR: disk.path });
    expect(await world.ended(await world.submit("print(1)"))).toMatchObject({ stdout: "1\n" });
    disk.fill();
    const lastSeen = async () => {
      const { agents } = (await world.send("GET", "/pool/stats")).json;
      return (agents as { last_seen: string }[])[0]?.last_seen;
    };
    const isWell = async () => (await world.send("GET", "/health")).json["docker_available"];
    await waitUntil("the agent says that it is full", async () => (await isWell()) === false);
    const id = await world.submit(writes);
    for (let turn = 0; turn < 2; turn++) {
      const before = await lastSeen();
      await waitUntil("the agent polls", async () => (await lastSeen()) !== before);
    }
    expect((await world.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "queued" });
    disk.free();
    expect(await world.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
    });
    expect((await world.ledger([])).retried).toBe(0);
  });
});
