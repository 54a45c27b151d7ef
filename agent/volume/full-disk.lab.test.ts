import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { copyBaseImage } from "../../scripts/testing/copy-base-image.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { makePrivateDockerd, type PrivateDockerd } from "../../scripts/testing/private-dockerd.ts";
import { makeSmallDisk, type SmallDisk } from "../../scripts/testing/small-disk.ts";
import { connectEngine, type Engine } from "../engine/engine.ts";
import { labels } from "../sandbox/labels.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { specWith } from "../sandbox/testing/report.ts";
import type { Forks } from "../fork/forks.ts";

const mebibyte = 1024 ** 2;
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
    image = (await engine.labelledImageId("io.airlock.stands-in-for", "python:3.13-slim", soon()))!;
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
