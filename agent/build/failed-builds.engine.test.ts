import { once } from "node:events";
import { afterAll, describe, expect, test } from "vitest";
import { buildProfile } from "./build-profile.ts";
import type { Engine } from "../engine/engine.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { labels } from "../sandbox/labels.ts";
import { deriveImage, rawEngine } from "../sandbox/testing/raw-engine.ts";
import { openBuildWorld, soon } from "../testing/build-world.ts";
import { makeImage } from "./image-build.ts";

const world = await openBuildWorld();
afterAll(() => world.close());

describe("a build that fails", () => {
  test("reports in pip's words what is missing, and makes no image", async () => {
    const failure = world.build(
      { findLinks: world.folder },
      { requirements: ["no-such-package==9"] },
    );
    await expect(failure).rejects.toThrow(InstallError);
    await expect(failure).rejects.toThrow(
      "ERROR: No matching distribution found for no-such-package==9",
    );
  });

  test("never passes a requirement as an option", async () => {
    const failure = world.build({ findLinks: world.folder }, { requirements: ["--version"] });
    await expect(failure).rejects.toThrow(/Invalid requirement: '?--version/);
  });

  test("says that a base image has no pip", async () => {
    const bare = await deriveImage(
      world.image,
      `rm -r "$(python3 -c 'import pip; print(*pip.__path__)')"`,
    );
    world.made.push(bare);
    const failure = world.build({ findLinks: world.folder }, { baseImage: bare });
    await expect(failure).rejects.toThrow("No module named pip");
  });

  test("says that a base image has no Python", async () => {
    const bare = await deriveImage(world.image, "rm $(which -a python3)");
    world.made.push(bare);
    const failure = world.build({ findLinks: world.folder }, { baseImage: bare });
    await expect(failure).rejects.toMatchObject({ code: "command_not_found", transient: false });
  });
});

describe("a build", () => {
  test("uses no more of its host than it is given", async () => {
    const request = await world.requestFor({ findLinks: world.folder });
    const seen = Promise.withResolvers<unknown>();
    const onLog = () =>
      void hostConfig().then((config) => config && seen.resolve(config), seen.reject);
    const made = makeImage(world.engine, request, onLog, soon());
    expect(await seen.promise).toMatchObject({
      PidsLimit: 1024,
      Memory: 2 * 1024 ** 3,
      MemorySwap: 2 * 1024 ** 3,
      NanoCpus: 1e9,
    });
    await made;
  });

  test("has a bound on its files, unless the engine refuses one", async () => {
    const asked: unknown[] = [];
    const create: Engine["create"] = (profile, signal) => {
      const { StorageOpt } = profile.HostConfig as { StorageOpt?: object };
      asked.push(StorageOpt);
      return world.engine.create(profile, signal);
    };
    const request = await world.requestFor({ findLinks: world.folder });
    const { digest } = await makeImage({ ...world.engine, create }, request, () => {}, soon());
    world.made.push(digest);
    expect(asked[0]).toEqual({ size: String(20 * 1024 ** 3) });
    // This engine may have taken the bound, or refused it.
    expect(asked.slice(1)).toEqual(asked.length === 1 ? [] : [undefined]);
  });

  test("ends by itself if its agent is killed", async () => {
    const { engine } = world;
    const request = await world.requestFor({ indexUrl: "http://127.0.0.1:9/" });
    const id = await engine.create(buildProfile(request, { boundsDisk: false }), soon());
    try {
      const stream = await engine.attach(id, soon());
      await engine.start(id, soon());
      const { requirements, pipEnv } = request;
      stream.write(`${JSON.stringify({ requirements, pip_env: pipEnv, files: [] })}\n`);
      // pip asks for a connection, which nobody gives it.
      await once(stream, "data", { signal: soon() });
      stream.destroy();
      await engine.wait(id, soon());
    } finally {
      await engine.remove(id, soon());
    }
    expect(await world.containers()).toEqual([]);
  });

  test("ends at once when it is cancelled, and leaves nothing", async () => {
    const index = await world.serve({ wheels: [] });
    const request = await world.requestFor({ indexUrl: index.url });
    const stop = new AbortController();
    let used: string[] = [];
    const onLog = () =>
      void volumes().then((names) => {
        used = names;
        stop.abort(new Error("enough"));
      });
    await expect(makeImage(world.engine, request, onLog, stop.signal)).rejects.toThrow("enough");
    expect(used).toHaveLength(1);
    const left = await rawEngine.listVolumes();
    expect(left.Volumes.map(({ Name }) => Name)).not.toContain(used[0]);
    expect(await world.containers()).toEqual([]);
  });
});

async function findContainers() {
  const filters = { label: [`${labels.agentName}=${world.repository}`] };
  return rawEngine.listContainers({ filters });
}

/** Names of the volumes of the containers that build now. */
async function volumes(): Promise<string[]> {
  return (await findContainers()).flatMap(({ Mounts }) => Mounts.map(({ Name }) => Name ?? ""));
}

/** What the container that builds now was made with. */
async function hostConfig(): Promise<object | undefined> {
  const [container] = await findContainers();
  return container && (await rawEngine.getContainer(container.Id).inspect()).HostConfig;
}
