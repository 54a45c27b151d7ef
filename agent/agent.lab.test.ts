import { spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  createReadStream,
  mkdirSync,
  readdirSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it, test } from "vitest";
import {
  copyBaseImage,
  makePrivateDockerd,
  makeSmallDisk,
  type PrivateDockerd,
  type SmallDisk,
} from "../scripts/testing/machine.ts";
import { needs } from "../scripts/testing/needs.ts";
import { forgetPeak, peakBytes, residentBytes } from "../shared/testing/memory.ts";
import { tempFolder } from "../shared/testing/test-file.ts";
import type { ResultReport } from "../shared/wire/leases.ts";
import { createReaper } from "./backends/containers.ts";
import type { Forks } from "./backends/forks.ts";
import { connectEngine, type Engine } from "./engine/engine.ts";
import { isAlive } from "./host/alive.ts";
import { labels } from "./sandbox/sandbox.ts";
import { type EngineProxy, startEngineProxy } from "./testing/agent-process.ts";
import { api, folder, host, start, useWorld } from "./testing/agent-world.ts";
import { startForks } from "./testing/backend.ts";
import { specWith, testEngine } from "./testing/engine.ts";
import { collectGarbage } from "./testing/hostile.ts";
import { runIn } from "./testing/run-code.ts";
import { testJob } from "./testing/test-agent.ts";

const mib = 1024 * 1024;
const caps = { stream_bytes: mib, artifact_bytes: mib };

const flood = `
import os
block = b"x" * 65536
for n in range(2 * 1024**3 // len(block)):
    os.write(1, block)
os.write(1, b"the end")
`;

const bigFile = `
with open("/output/big.bin", "wb") as file:
    for n in range(100):
        file.write(bytes([n]) * 1024 * 1024)
`;

describe("floods", () => {
  let proxy: EngineProxy;
  // Around the agent, which still needs it when it ends.
  afterEach(() => proxy[Symbol.asyncDispose]());
  useWorld();

  async function startBehindProxy() {
    proxy = await startEngineProxy(host, join(folder, "engine.sock"));
    return start({ AIRLOCK_DOCKER_HOST: proxy.host });
  }

  it("no more than the cap of 2 GiB on stdout leaves the container, and the agent stays small", async () => {
    const agent = await startBehindProxy();
    const pid = agent.process.pid!;
    const before = residentBytes(pid);
    forgetPeak(pid);
    api.offer(testJob({ code: flood, caps, timeout_s: 80 }));
    const report = (await api.request("/result")).json as ResultReport;
    expect(report).toMatchObject({ status: "succeeded", stdout_truncated: true });
    const stdout = Buffer.from(report.stdout_base64, "base64");
    expect(stdout.length).toBeGreaterThanOrEqual(mib);
    expect(stdout.subarray(-7).toString()).toBe("the end");
    expect(proxy.bytesOut()).toBeLessThan(2 * mib);
    expect(peakBytes(pid) - before).toBeLessThan(60 * mib);
  });

  it("an agent that does not read slows the container down and loses nothing", async () => {
    const agent = await startBehindProxy();
    const artifactCaps = { ...caps, artifact_bytes: 100 * mib };
    api.offer(testJob({ code: bigFile, caps: artifactCaps, timeout_s: 80 }));
    while (proxy.bytesOut() < mib) await sleep(1);
    agent.process.kill("SIGSTOP");
    // What is on its way fills the sockets' buffers, and then nothing moves.
    let before = -1;
    for (let now = proxy.bytesOut(); now !== before; now = proxy.bytesOut()) {
      before = now;
      await sleep(300);
    }
    expect(proxy.bytesOut()).toBeLessThan(90 * mib);
    agent.process.kill("SIGCONT");
    expect((await api.request("/result")).json).toMatchObject({ status: "succeeded", error: null });
    const { bytes } = await api.request("/big.bin");
    expect(bytes.length).toBe(100 * mib);
    expect([...Array(100).keys()].map((n) => bytes[n * mib + 7])).toEqual([...Array(100).keys()]);
  });
});

const mebibyte = 1024 ** 2;

describe("large file", () => {
  const soon = (): AbortSignal => AbortSignal.timeout(280_000);

  test("a job of 512 MiB reads a file of 1 GiB, and the memory of its agent stays flat", async () => {
    const place = await testEngine();
    const folder = tempFolder();
    const packages = { maxBytes: 3 * 1024 * mebibyte, keepsUnused: false, memoryBytes: mebibyte };
    const forks = startForks(place, { packages });
    try {
      const path = join(folder, "large");
      writeFileSync(path, "begin");
      truncateSync(path, 1024 * mebibyte);
      const hash = createHash("sha256");
      await pipeline(createReadStream(path), hash);
      const sha256 = hash.digest("hex");
      collectGarbage();
      const before = process.memoryUsage().rss;
      const file = { name: "a/large", path, sha256, sizeBytes: 1024 * mebibyte };
      const loan = await forks.borrowFile("default", file, soon());
      const after = process.memoryUsage().rss;
      const spec = specWith({ image: place.image, memoryBytes: 512 * mebibyte });
      const files = [{ bundle: loan.name, name: file.name }];
      const sandbox = await forks.open(spec, soon(), { packages: null, files });
      expect([...sandbox.mounted!]).toEqual(["a/large"]);
      const code = `
import hashlib, os
with open("/input/a/large", "rb") as file:
    print(hashlib.file_digest(file, "sha256").hexdigest(), os.path.getsize("/input/a/large"))`;
      const report = await runIn(sandbox, code, { job: { timeoutMs: 200_000 } });
      expect(Buffer.from(report.stdout).toString()).toBe(`${sha256} ${1024 * mebibyte}\n`);
      expect((after - before) / mebibyte).toBeLessThan(200);
      await sandbox.close();
      loan.giveBack();
    } finally {
      await forks.close();
    }
  });
});

describe("full disk", () => {
  const machine = process.env["AIRLOCK_DOCKER_HOST"] || "unix:///var/run/docker.sock";
  const soon = (): AbortSignal => AbortSignal.timeout(120_000);

  describe("while the engine's disk is full", needs("root"), () => {
    const folder = tempFolder();
    let disk: SmallDisk;
    let dockerd: PrivateDockerd;
    let engine: Engine;
    let image: string;
    let forks: Forks;

    beforeAll(async () => {
      disk = makeSmallDisk(join(folder, "disk"), 600);
      const dir = join(disk.path, "engine");
      mkdirSync(dir);
      dockerd = makePrivateDockerd(dir);
      await dockerd.start();
      await copyBaseImage(machine, dockerd.host);
      engine = connectEngine(dockerd.host);
      image = (await engine.labelledImageId(
        "io.airlock.stands-in-for",
        "python:3.13-slim",
        soon(),
      ))!;
      forks = startForks({ engine, image });
    });
    afterAll(async () => {
      await forks.close();
      await dockerd[Symbol.asyncDispose]();
      disk[Symbol.dispose]();
    });

    /** Fills the engine's disk until `leftBytes` are free. */
    function fillUpTo(leftBytes: number): void {
      const { bavail, bsize } = statfsSync(disk.path);
      writeFileSync(join(disk.path, "ballast"), Buffer.alloc(bavail * bsize - leftBytes));
    }

    const filesIn = (volume: string): string[] =>
      readdirSync(join(dockerd.dir, "data/volumes", volume, "_data"));
    const unpackers = async (): Promise<string[]> =>
      (await engine.list(labels.agentName, "sandbox-tests-mother", soon()))
        .map(({ labels: its }) => its[labels.leaseId] ?? "")
        .filter((lease) => lease.startsWith("unpack-"));
    test("an image that does not fit leaves nothing, and jobs start once there is room", async () => {
      fillUpTo(40 * mebibyte);
      // The image is the mother's too, so it is the probe job that needs its files.
      await expect(forks.open(specWith({ image }), soon())).rejects.toMatchObject({
        code: "not_forked",
        message: expect.stringMatching(
          /^jobs are not forked here: .*No space left on device$/,
        ) as string,
      });
      expect(filesIn("airlock-rootfs-tests")).toEqual([]);
      expect(await unpackers()).toEqual([]);
      disk.free();
      // The next probe begins some seconds after the last one.
      await expect.poll(() => forks.problem()).toBeNull();
      await (await forks.open(specWith({ image }), soon())).close();
    });

    test("a file that does not fit leaves nothing, and can be used once there is room", async () => {
      const path = join(folder, "large");
      const content = Buffer.alloc(30 * mebibyte, "x");
      writeFileSync(path, content);
      const sha256 = createHash("sha256").update(content).digest("hex");
      const file = { name: "large", path, sha256, sizeBytes: content.length };
      fillUpTo(10 * mebibyte);
      await expect(forks.borrowFile("default", file, soon())).rejects.toMatchObject({
        name: "EngineError",
        code: "disk_full",
        transient: true,
      });
      expect(filesIn("airlock-bundles-tests")).toEqual([]);
      expect(await unpackers()).toEqual([]);
      disk.free();
      const { name, giveBack } = await forks.borrowFile("default", file, soon());
      expect(filesIn("airlock-bundles-tests")).toEqual([name]);
      giveBack();
    });
  });
});

describe("reap", () => {
  const soon = (): AbortSignal => AbortSignal.timeout(60_000);
  const program = fileURLToPath(import.meta.resolve("./testing/doomed-agent.ts"));

  it("an agent leaves the containers of one of its name in another network namespace", async () => {
    const { engine } = await testEngine();
    const [agentName, elsewhere] = [`reap-${randomUUID()}`, randomUUID()];
    const node = [process.execPath, "--import", "tsx", program, elsewhere, agentName];
    const agent = spawn("unshare", ["--net", ...node], { stdio: ["ignore", "pipe", "inherit"] });
    let nowMs = 0;
    const reap = createReaper(engine, {
      agentName,
      agentId: randomUUID(),
      isAlive,
      isHeld: () => false,
      nowMs: () => nowMs,
    });
    try {
      const [containerId] = (await once(agent.stdout, "data", { signal: soon() })) as [Buffer];
      expect(await reap(soon())).toBe(0);
      expect(await engine.inspect(String(containerId), soon())).toMatchObject({ isRunning: true });
      agent.kill("SIGKILL");
      await engine.wait(String(containerId), soon());
      expect(await reap(soon())).toBe(0);
      nowMs = 10 * 60_000;
      expect(await reap(soon())).toBe(1);
    } finally {
      agent.kill("SIGKILL");
      const left = await engine.list(labels.agentId, elsewhere, soon());
      await Promise.all(left.map(({ id }) => engine.remove(id, soon())));
    }
  });
});
