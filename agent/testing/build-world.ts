import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { makeImage } from "../build/image-build.ts";
import type { ImageRequest } from "../build/build-profile.ts";
import { createPackageProxy } from "../packages/proxy.ts";
import { type PipConfig, readPackageSource } from "../packages/source.ts";
import { buildLimits } from "../policy/policy.ts";
import { labels } from "../sandbox/labels.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import {
  type IndexOptions,
  type PackageIndex,
  startIndex,
} from "../sandbox/testing/package-index.ts";
import { rawEngine, removeImages } from "../sandbox/testing/raw-engine.ts";
import { writeWheels } from "../sandbox/testing/wheel.ts";
import { pipConfig } from "./pip-config.ts";

const probe = { name: "airlock_probe", version: "1.2.0", source: "answer = 42\n" };
/** Code that prints 42 if the package is there. */
export const printAnswer = "import airlock_probe; print(airlock_probe.answer)";

const limits = buildLimits({ agent_builds: true });

export const soon = (): AbortSignal => AbortSignal.timeout(60_000);

export type BuildWorld = Awaited<ReturnType<typeof openBuildWorld>>;

/** A real engine, and a package to build images with: airlock_probe, as a wheel in `folder`. */
export async function openBuildWorld() {
  const { engine, image } = await testEngine();
  const folder = tempFolder();
  writeWheels(folder, probe);
  const repository = `airlock-test-${randomUUID()}`;
  const owner = { agentId: randomUUID(), agentName: repository, leaseId: randomUUID() };
  /** Images to remove at the end. */
  const made: string[] = [];

  /** The request of a build that installs airlock_probe. */
  async function requestFor(
    pip: Partial<PipConfig>,
    changes: Partial<ImageRequest> = {},
  ): Promise<ImageRequest> {
    const { files, pipEnv, hosts } = await readPackageSource(pipConfig(pip));
    return {
      files,
      pipEnv,
      serve: createPackageProxy({ ...hosts, files: [] }, () => {}),
      baseImage: image,
      requirements: ["airlock_probe"],
      jobType: "science",
      repository,
      tags: ["v1.2.3", "latest"],
      owner,
      limits,
      ...changes,
    };
  }

  /** Containers that build now. */
  const containers = () => engine.list(labels.agentName, repository, soon());

  /** Builds an image, and checks that no container is left. */
  async function build(pip: Partial<PipConfig>, changes: Partial<ImageRequest> = {}) {
    const log: Uint8Array[] = [];
    try {
      const request = await requestFor(pip, changes);
      const result = await makeImage(engine, request, (bytes) => log.push(bytes), soon());
      made.push(result.digest);
      return { ...result, log: Buffer.concat(log).toString("utf8") };
    } finally {
      expect(await containers()).toEqual([]);
    }
  }

  return {
    engine,
    image,
    folder,
    repository,
    limits,
    made,
    requestFor,
    containers,
    build,
    /** A package index with airlock_probe. */
    serve: (options: Partial<IndexOptions> = {}): Promise<PackageIndex> =>
      startIndex({ wheels: [probe], ...options }),
    async close() {
      const filters = { label: [`io.airlock.repository=${repository}`] };
      const left = await rawEngine.listImages({ filters });
      await removeImages(...made, ...left.map(({ Id }) => Id));
    },
  };
}
