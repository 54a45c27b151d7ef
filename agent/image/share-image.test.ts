import { Readable } from "node:stream";
import { beforeEach, describe, expect, it } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import type { LeasedBuild } from "../../shared/wire/agent/lease.ts";
import { ApiError } from "../api/errors.ts";
import { PushError, shareImage, type ShareDeps } from "./share-image.ts";
import { EngineError } from "../sandbox/errors.ts";
import { openSpoolDir } from "../sandbox/output/spool-dir.ts";
import { testBuild, testImage } from "../testing/test-agent.ts";

const never = new AbortController().signal;
const digest = `sha256:${"3".repeat(64)}`;

let root: string;
let said: string;
let pushed: string[];
let push: () => Promise<string>;
let save: () => Promise<Readable>;
let deps: ShareDeps;

beforeEach(async () => {
  root = tempFolder();
  said = "";
  pushed = [];
  push = () => Promise.resolve(digest);
  save = () => Promise.resolve(Readable.from([Buffer.alloc(1024)]));
  deps = {
    client: { buildImage: () => Promise.reject(new ApiError("transient", "no answer")) },
    imageCalls: {
      push: (repository, tag, _signal, auth) => {
        pushed.push(`${repository}:${tag} by ${auth?.username}`);
        return push();
      },
      save: () => save(),
    },
    spool: await openSpoolDir(root, "0", "here"),
    registry: { name: "registry.example", auth: { username: "me", password: "secret" } },
    maxImageBytes: 1024 * 1024,
    times: { retries: 2, minTimeout: 1, maxTimeout: 2 },
  };
});

const share = (build: Parameters<typeof testBuild>[0]) =>
  shareImage(deps, testBuild(build), testImage, (words) => (said += words), never);

describe("by a registry", () => {
  const build: Partial<LeasedBuild> = {
    share: "registry",
    repository: "registry.example/airlock-t",
    tags: ["v1.0.0", "latest"],
  };

  it("pushes every tag as its own user, and says so", async () => {
    expect(await share(build)).toBe(digest);
    expect(pushed).toEqual([
      "registry.example/airlock-t:v1.0.0 by me",
      "registry.example/airlock-t:latest by me",
    ]);
    expect(said).toContain(`Pushed registry.example/airlock-t:latest (${digest})`);
  });

  it("tries again, and reports each time what the registry says", async () => {
    push = () => {
      push = () => Promise.resolve(digest);
      return Promise.reject(new EngineError("other", "connection refused"));
    };
    expect(await share(build)).toBe(digest);
    expect(said).toMatch(/^Not pushed: connection refused\nPushed /);
  });

  it("gives up with the registry's message, which does not count against the engine", async () => {
    push = () => Promise.reject(new EngineError("other", "denied"));
    const failure = share(build);
    await expect(failure).rejects.toBeInstanceOf(PushError);
    await expect(failure).rejects.toThrow(
      "registry.example/airlock-t:v1.0.0 could not be pushed: denied",
    );
    expect(pushed).toHaveLength(3);
  });
});

describe("through the artifact store", () => {
  const build = { share: "store", share_max_bytes: 1024 * 1024 } as const;

  it.each([
    ["an engine that does not export it", () => Promise.reject(new EngineError("other", "gone"))],
    ["an invalid tar", () => Promise.resolve(Readable.from([Buffer.alloc(600, 1)]))],
  ])("%s leaves the build as it is, with a message and no file", async (_what, saves) => {
    save = saves;
    expect(await share(build)).toBeNull();
    expect(said).toMatch(/^The image stays on this host: .+\n$/);
  });

  it.each(["lease_lost", "unauthorized", "incompatible"] as const)(
    "an API that refuses the agent ends the build: %s",
    async (kind) => {
      save = () => Promise.reject(new ApiError(kind, "no"));
      await expect(share(build)).rejects.toMatchObject({ kind });
    },
  );

  it("saves nothing if the API or the agent takes none", async () => {
    save = () => Promise.reject(new Error("asked"));
    expect(await share({ share: "none" })).toBeNull();
    deps = { ...deps, maxImageBytes: 0 };
    expect(await share(build)).toBeNull();
    expect(said).toBe("");
  });
});
