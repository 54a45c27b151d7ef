import { globSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ArtifactOutage } from "../../api/deps.ts";
import { artifactFolder } from "../../api/platform/artifacts/artifacts-fs.node.ts";
import { startTestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { makeSmallDisk, type SmallDisk } from "../testing/small-disk.ts";
import { needs } from "../testing/needs.ts";
import { makeCodeSignal } from "../../agent/sandbox/testing/code-signal.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

let folder: string;
let disk: SmallDisk;
const signal = makeCodeSignal();

describe("fault 10: a full disk", needs("root"), () => {
  beforeEach(() => {
    folder = tempFolder();
    disk = makeSmallDisk(join(folder, "disk"), 32);
  });
  afterEach(() => {
    disk[Symbol.dispose]();
  });

  const writes = `
open("file.bin", "wb").write(b"x" * 300_000)
`;
  const writesThenWaits = `${writes}${signal.wait}`;

  test("under the API: submissions are 503, and acknowledged jobs end", async () => {
    await using service = await startTestService({
      folder: join(disk.path, "data"),
      api: { ...shortLeases, AIRLOCK_LEASE_TTL_S: "60" },
      agents: { AIRLOCK_SPOOL_DIR: join(folder, "spool") },
    });
    const agent = await service.startAgent();
    const id = await service.submit(writesThenWaits);
    await service.untilBegun(id);
    disk.fill();
    const body = { code: "print(1)", input_data: { pad: "x".repeat(100_000) } };
    for (const path of ["/execute", "/execute/async"]) {
      const refused = await service.send("POST", path, body);
      expect(refused.status).toBe(503);
      expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
      expect(refused.json).toMatchObject({ error: { type: "service_unavailable" } });
    }
    expect((await service.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "running" });
    // The code has ended once its file is on its way, which the API refuses.
    await signal.sendTo(agent.name);
    const spool = () => globSync(`${folder}/spool/**/*`, { withFileTypes: true });
    await waitUntil("a file is on its way", () => spool().some((at) => at.isFile()));
    expect((await service.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "running" });

    disk.free();
    expect(await service.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
    });
    expect((await service.send("GET", "/executions")).json).toMatchObject({ count: 1 });
    const ledger = await service.ledger([{ id, ends: ["succeeded"] }]);
    expect(ledger).toMatchObject({ retried: 0, faults: [] });
  });

  test("under the artifacts alone: they are unavailable for the moment, and nothing is left of an upload", async () => {
    const store = artifactFolder(join(disk.path, "artifacts"));
    const sizeBytes = 100_000;
    const put = () => store.put("a/b", new Blob(["x".repeat(sizeBytes)]).stream(), { sizeBytes });
    disk.fill();
    await expect(put()).rejects.toThrow(ArtifactOutage);
    disk.free();
    const left = readdirSync(disk.path, { recursive: true, withFileTypes: true });
    expect(left.filter((at) => at.isFile())).toEqual([]);
    await put();
  });

  test("under the agent, while code runs: it runs again once there is room", async () => {
    await using service = await startTestService({ api: shortLeases });
    const agent = await service.startAgent("filled", { AIRLOCK_SPOOL_DIR: disk.path });
    const id = await service.submit(writesThenWaits);
    await service.untilBegun(id);
    disk.fill();
    await signal.sendTo(agent.name);
    const status = async () => (await service.send("GET", `/jobs/${id}`)).json["status"];
    await waitUntil("the attempt fails", async () => (await status()) !== "running");
    expect(await status()).toBe("queued");
    disk.free();
    await service.untilBegun(id, 2);
    await signal.sendTo(agent.name);
    expect(await service.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
    });
    expect(await service.ledger([{ id, ends: ["succeeded"] }])).toMatchObject({
      retried: 1,
      faults: [],
    });
  });

  test("under the agent: it leases nothing until there is room again", async () => {
    await using service = await startTestService({ api: shortLeases });
    await service.startAgent("cramped", { AIRLOCK_SPOOL_DIR: disk.path });
    expect(await service.ended(await service.submit("print(1)"))).toMatchObject({ stdout: "1\n" });
    const lastSeen = async () => {
      const { agents } = (await service.send("GET", "/pool/stats")).json;
      return (agents as { last_seen: string }[])[0]?.last_seen;
    };
    const isWell = async () => (await service.send("GET", "/health")).json["docker_available"];
    await waitUntil("the agent says that it is full", async () => {
      // Each time again: the agent checks its disk with a file of its own, whose removal makes room.
      disk.fill();
      return (await isWell()) === false;
    });
    const id = await service.submit(writes);
    for (let turn = 0; turn < 2; turn++) {
      const before = await lastSeen();
      await waitUntil("the agent polls", async () => (await lastSeen()) !== before);
    }
    expect((await service.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "queued" });
    disk.free();
    expect(await service.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
    });
    expect((await service.ledger([])).retried).toBe(0);
  });
});
