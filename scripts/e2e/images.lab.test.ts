import { readdirSync } from "node:fs";
import { join } from "node:path";
import { zstdCompressSync } from "node:zlib";
import { getLogger } from "@logtape/logtape";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/sandbox/testing/engine.ts";
import { writeWheels } from "../../agent/sandbox/testing/wheel.ts";
import type { InProgressResult } from "../../shared/wire/execution.ts";
import { systemClock } from "../../agent/waiting/clock.ts";
import { createFetchedImages, FETCHED } from "../../agent/image/fetched-images.ts";
import { connectEngine } from "../../agent/engine/engine.ts";
import { connect } from "../setup/engine/connect.ts";
import {
  type ArchiveProxy,
  cut,
  flipped,
  replacedBy,
  startArchiveProxy,
  stuck,
  whole,
} from "../testing/archive-proxy.ts";
import { build, lastBuild } from "../testing/builds.ts";
import { makeRegistry } from "../testing/registry.ts";
import {
  inNetworkOf,
  makePrivateDockerd,
  type PrivateDockerd,
} from "../testing/private-dockerd.ts";
import { needs } from "../testing/needs.ts";
import { startTestService, type TestService, type Variables } from "../testing/test-service.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

const printAnswer = "import airlock_probe; print(airlock_probe.answer)";
const probe = { name: "airlock_probe", version: "42.0", source: "answer = 42\n" };

const asRoot = { ...needs("root", "docker-registry"), timeout: 600_000 };

describe("two hosts, each with an engine of its own", asRoot, () => {
  let far: PrivateDockerd;
  let wheels: string;
  let service: TestService;
  let proxy: ArchiveProxy;

  beforeAll(async () => {
    await testEngine();
    far = makePrivateDockerd();
    await far.start();
    wheels = tempFolder();
    writeWheels(wheels, probe);
  });
  afterAll(async () => {
    await far[Symbol.asyncDispose]();
  });

  /** An API, and an agent beside it. */
  async function startService(vars: Variables = {}): Promise<void> {
    service = await startTestService({
      api: {
        ...vars,
        AIRLOCK_LEASE_TTL_S: "30",
        AIRLOCK_LIVENESS_S: "15",
        // The agents look again, and so try again, at least this often.
        AIRLOCK_POLL_WAIT_S: "1",
        AIRLOCK_JOB_TYPES: JSON.stringify({
          remote: { requirements: ["airlock_probe"], labels: { host: "far" } },
        }),
      },
      agents: { ...vars, AIRLOCK_PIP_FIND_LINKS: wheels },
    });
    proxy = await startArchiveProxy(service.url);
    await service.startAgent("near");
  }
  afterEach(async () => {
    await service?.[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
    const engine = connect(far.host);
    for (const { Id } of await engine.listContainers({ all: true }))
      await engine.getContainer(Id).remove({ force: true });
    for (const { Id } of await engine.listImages())
      await engine.getImage(Id).remove({ force: true });
  });

  /** An agent that builds nothing, and alone has the label that jobs of the type `remote` ask for. */
  const addFar = (vars: Variables = {}) =>
    service.startAgent("far", {
      AIRLOCK_API_URL: proxy.url,
      AIRLOCK_AGENT_LABELS: JSON.stringify({ host: "far" }),
      AIRLOCK_AGENT_BUILDS: "false",
      AIRLOCK_DOCKER_HOST: far.host,
      ...vars,
    });

  const submit = () => service.submit(printAnswer, {}, { job_type: "remote" });
  const message = async (id: string) =>
    (await service.send<InProgressResult>("GET", `/jobs/${id}/result`)).json.message;
  const untilMessage = async (id: string, words: RegExp) => {
    await expect.poll(() => message(id), { timeout: 120_000 }).toMatch(words);
  };
  /** Images, and bytes of layers, on the far engine. */
  async function stock(): Promise<{ images: number; bytes: number }> {
    const { Images, LayersSize } = (await connect(far.host).df()) as {
      Images: unknown[] | null;
      LayersSize: number;
    };
    return { images: Images?.length ?? 0, bytes: LayersSize };
  }
  /** Removes what was fetched there, as an agent without room would; returns the bytes left. */
  const pruneAll = () =>
    createFetchedImages({
      imageCalls: connectEngine(far.host),
      maxBytes: 0,
      clock: systemClock,
      log: getLogger(["airlock", "test"]),
    }).prune([], AbortSignal.timeout(60_000));
  const nothing = { images: 0, bytes: 0 };

  test("an image built on one runs on the other, with the same digest; on one engine nothing is transferred", async () => {
    await startService();
    const beside = await addFar({ AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"] ?? "" });
    const { digest } = await build(service, "remote", "v1.0.0");
    const expectRun = async (): Promise<void> => {
      const id = await submit();
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        stdout: "42\n",
        job_version: "v1.0.0",
        job_ref: `remote@${digest}`,
      });
    };
    await expectRun();
    beside.process.kill("SIGTERM");
    await beside.exit;
    expect(proxy.asked()).toBe(0);

    void proxy.next(whole);
    await addFar();
    await expectRun();
    const images = await connect(far.host).listImages();
    expect(images).toMatchObject([
      { Id: digest, RepoTags: [`${FETCHED}:${digest.slice("sha256:".length)}`] },
    ]);
    expect(proxy.asked()).toBe(1);
  });

  test("a damaged, wrong or abandoned transfer leaves nothing, is reported and starts again; an interrupted one continues", async () => {
    await startService();
    const agent = await addFar();
    await build(service, "remote");
    const id = await submit();
    await untilMessage(id, /is on its way to 1 agent/);
    const foreign = zstdCompressSync(`${JSON.stringify({ config: 2, layers: [] })}\n{}`);
    for (const [damage, reason] of [
      [flipped, /it is damaged|a layer is not sha256:/],
      [replacedBy(foreign), /its id is not that of its configuration/],
    ] as const) {
      await proxy.next(damage);
      await untilMessage(id, reason);
      expect(await stock()).toEqual(nothing);
    }

    await proxy.next(stuck);
    agent.process.kill("SIGKILL");
    await agent.exit;
    await expect.poll(stock, { timeout: 60_000 }).toEqual(nothing);
    await expect
      .poll(() => readdirSync(join(far.dir, "data/tmp")), { timeout: 60_000 })
      .toEqual([]);

    const [asked, parts] = [proxy.asked(), proxy.parts()];
    await addFar();
    void proxy.next(cut);
    expect(await service.ended(id)).toMatchObject({ status: "succeeded", stdout: "42\n" });
    expect(proxy.asked() - asked).toBe(1 + proxy.parts() - parts);
    expect(proxy.parts()).toBeGreaterThan(parts);
  });

  test("over a registry: pushed and pulled by digest; while it is down both wait, and say why", async () => {
    const registry = await makeRegistry();
    const vars = {
      AIRLOCK_IMAGE_REGISTRY: registry.name,
      AIRLOCK_IMAGE_REGISTRY_USERNAME: registry.username,
      AIRLOCK_IMAGE_REGISTRY_PASSWORD: registry.password,
    };
    try {
      await startService(vars);
      await addFar();
      const building = build(service, "remote", "v1.0.0");
      await expect
        .poll(async () => (await lastBuild(service, "remote")).log, { timeout: 120_000 })
        .toMatch(/Not pushed: .*connection refused/);
      await registry.start();
      const { digest, image_ref } = await building;
      expect(image_ref).toBe(`${registry.name}/${service.name}-remote:v1.0.0`);

      const id = await submit();
      await untilMessage(id, /far could not get it: .*dial tcp/);
      await registry.start(inNetworkOf(far));
      expect(await service.ended(id)).toMatchObject({
        stdout: "42\n",
        job_ref: `remote@${digest}`,
      });
      const [image] = await connect(far.host).listImages();
      expect(image?.RepoDigests).toEqual([
        expect.stringMatching(`^${registry.name}/${service.name}-remote@sha256:`),
      ]);
      expect(proxy.asked()).toBe(0);
      await expect.poll(pruneAll, { timeout: 60_000 }).toBe(0);
      expect(await stock()).toEqual(nothing);
    } finally {
      await registry[Symbol.asyncDispose]();
    }
  });
});
