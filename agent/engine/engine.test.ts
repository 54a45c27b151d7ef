import { once } from "node:events";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, it, test } from "vitest";
import { containerProfile, motherProfile } from "../backends/profiles.ts";
import { specWith } from "../testing/engine.ts";
import { type Answer, fakeEngines } from "../testing/fakes.ts";
import { connectEngine, type Engine, engineHost, forPodman } from "./engine.ts";

const never = new AbortController().signal;

const saying =
  (body: object, status = 200): Answer =>
  (request, response) => {
    request.resume().on("end", () => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    });
  };

describe("engine", () => {
  const { folder, fakeEngine } = fakeEngines();

  const failing = (status: number, message: string) => saying({ message }, status);
  const profile = containerProfile(specWith());

  test.each([
    [404, "No such image: python:3.13-slim", "image_not_found", false],
    [404, "No such container: abc", "other", false],
    [409, "You cannot remove a running container", "conflict", false],
    [400, "invalid runtime name: nope", "other", false],
    [
      400,
      'OCI runtime create failed: exec: "python3": executable file not found in $PATH: unknown',
      "command_not_found",
      false,
    ],
    [500, "exec: python3: no such file or directory", "command_not_found", true],
    [500, "write /var/lib/x: no space left on device", "disk_full", true],
    [500, "server misbehaving", "other", true],
  ])("status %i, %s: %s", async (status, message, code, transient) => {
    const engine = await fakeEngine(failing(status, message));
    await expect(engine.create(profile, never)).rejects.toMatchObject({
      name: "EngineError",
      code,
      transient,
      message: expect.stringContaining(message) as string,
    });
  });

  test("an engine tells its version and its runtimes, its default first", async () => {
    const info = {
      ServerVersion: "20.10",
      DefaultRuntime: "runc",
      Runtimes: { runsc: {}, runc: {} },
    };
    const engine = await fakeEngine(saying(info));
    expect(await engine.describe(never)).toEqual({
      available: true,
      version: "20.10",
      runtimes: ["runc", "runsc"],
    });
  });

  test("an engine that is not there is unavailable", async () => {
    const engine = connectEngine(`unix://${folder}/absent.sock`);
    await expect(engine.describe(never)).rejects.toMatchObject({
      name: "EngineError",
      code: "unavailable",
      transient: true,
    });
  });

  test("an engine that hangs up is unavailable", async () => {
    const engine = await fakeEngine((request) => request.socket.destroy());
    await expect(engine.start("abc", never)).rejects.toMatchObject({ code: "unavailable" });
  });

  const calls: Record<string, (engine: Engine, signal: AbortSignal) => Promise<unknown>> = {
    ping: (engine, signal) => engine.ping(signal),
    describe: (engine, signal) => engine.describe(signal),
    create: (engine, signal) => engine.create(profile, signal),
    attach: (engine, signal) => engine.attach("abc", signal),
    start: (engine, signal) => engine.start("abc", signal),
    wait: (engine, signal) => engine.wait("abc", signal),
    inspect: (engine, signal) => engine.inspect("abc", signal),
    tellsOutOfMemory: (engine, signal) => engine.tellsOutOfMemory("abc", signal),
    remove: (engine, signal) => engine.remove("abc", signal),
    list: (engine, signal) => engine.list("a", "b", signal),
    imageId: (engine, signal) => engine.imageId("x", signal),
    labelledImageId: (engine, signal) => engine.labelledImageId("a", "b", signal),
    pull: (engine, signal) => engine.pull("x:y", signal),
  };

  test.each(Object.entries(calls))(
    "%s can be given up while the engine says nothing",
    async (_name, call) => {
      const asked = Promise.withResolvers<void>();
      const engine = await fakeEngine((request) => request.resume().on("end", asked.resolve));
      const giveUp = new AbortController();
      const calling = call(engine, giveUp.signal);
      await Promise.race([asked.promise, calling]);
      giveUp.abort(new Error("no time"));
      await expect(calling).rejects.toThrow("no time");
    },
  );

  test("news that a container was out of memory may come after its end, or not at all", async () => {
    const engine = await fakeEngine((request, response) => {
      request.resume();
      response.writeHead(200, { "content-type": "application/json" }).flushHeaders();
      const { searchParams } = new URL(request.url ?? "", "http://engine");
      expect(JSON.parse(searchParams.get("filters") ?? "")).toMatchObject({ event: ["oom"] });
      const isTold = searchParams.get("filters")?.includes("killed");
      if (isTold) setTimeout(() => response.write('{"Action":"oom"}\n'), 10);
    });
    expect(await engine.tellsOutOfMemory("killed", never)).toBe(true);
    expect(await engine.tellsOutOfMemory("stopped", never)).toBe(false);
  });

  test("the profile travels in the body alone", async () => {
    const addresses: (string | undefined)[] = [];
    const engine = await fakeEngine((request, response) => {
      addresses.push(request.url);
      request.resume().on("end", () => response.writeHead(201).end(JSON.stringify({ Id: "abc" })));
    });
    expect(await engine.create(profile, never)).toBe("abc");
    expect(addresses).toEqual([
      expect.stringMatching(/^\/containers\/create\?name=airlock-agent-1-[0-9a-f-]{36}$/),
    ]);
  });

  test("nothing but the supervisor's orders comes into a container", async () => {
    const first = Promise.withResolvers<string>();
    const path = join(folder, "attach.sock");
    // Podman's way: whatever follows the head of the request is the container's input.
    const server = createServer((socket) => {
      let heard = "";
      socket.on("data", (chunk) => {
        heard += chunk.toString();
        const [head = "", ...rest] = heard.split("\r\n\r\n");
        if (rest.length === 0) return;
        if (heard.endsWith("order")) first.resolve(rest.join("\r\n\r\n"));
        else socket.write("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
        expect(head).toMatch(/^POST .*stdin=true/);
      });
    }).listen(path);
    await once(server, "listening");
    const stream = await connectEngine(`unix://${path}`).attach("abc", never);
    stream.write("order");
    expect(await first.promise).toBe("order");
    stream.destroy();
    server.close();
  });

  test("a container that is gone already needs no removal", async () => {
    const engine = await fakeEngine(failing(404, "No such container: abc"));
    await expect(engine.remove("abc", never)).resolves.toBeUndefined();
  });

  test("an image that is not there has no id", async () => {
    const engine = await fakeEngine(failing(404, "No such image: x"));
    expect(await engine.imageId("x", never)).toBeNull();
  });

  test("a pull that fails half way is an error", async () => {
    const engine = await fakeEngine((request, response) => {
      request.resume();
      response.write(`${JSON.stringify({ status: "Pulling" })}\r\n`);
      response.end(`${JSON.stringify({ error: "manifest unknown" })}\r\n`);
    });
    await expect(engine.pull("x:y", never)).rejects.toMatchObject({
      name: "EngineError",
      code: "image_not_found",
      message: "manifest unknown",
    });
  });
});

describe("engine filter", () => {
  const { folder, fakeEngine } = fakeEngines();
  const profile = containerProfile(specWith());

  /** Podman: it takes a profile for the name of a file, which it may be able to read. */
  const podman =
    (canRead: boolean, filters: string[][]): Answer =>
    async (request, response) => {
      const { HostConfig } = JSON.parse(await text(request)) as typeof profile;
      filters.push(HostConfig.SecurityOpt.map((option) => option.slice(0, 9)));
      const file = HostConfig.SecurityOpt[1]?.slice("seccomp=".length);
      const isText = file?.startsWith("{");
      const refusal = `opening seccomp profile failed: ${isText ? "file name too long" : "no such file"}`;
      if (file && canRead && existsSync(file))
        expect(readFileSync(file, "utf8")).toContain("defaultAction");
      const isRefused = file !== undefined && (isText || !canRead || !existsSync(file));
      response.writeHead(isRefused ? 500 : 201, { "content-type": "application/json" });
      response.end(JSON.stringify(isRefused ? { message: refusal } : { Id: "abc" }));
    };
  const [asText, asFile, own] = [
    ["no-new-pr", "seccomp={"],
    ["no-new-pr", "seccomp=/"],
    ["no-new-pr"],
  ];

  test.each([
    ["gets it as a file", true, folder, [asText, asFile, asFile], 0],
    [
      "filters by its own where it cannot read that, with one warning",
      false,
      folder,
      [asText, asFile, own, own],
      1,
    ],
    [
      "filters by its own without such a file, with one warning",
      true,
      undefined,
      [asText, own, own],
      1,
    ],
  ])("an engine that takes no seccomp profile %s", async (_what, canRead, files, tried, warned) => {
    const filters: string[][] = [];
    const warnings: string[] = [];
    const warn = (message: string): unknown => warnings.push(message);
    const engine = await fakeEngine(podman(canRead, filters), warn, files);
    expect(await engine.create(profile, never)).toBe("abc");
    expect(await engine.create(profile, never)).toBe("abc");
    expect(filters).toEqual(tried);
    expect(warnings).toHaveLength(warned);
  });

  test("a filter whose file was removed is written again", async () => {
    const filters: string[][] = [];
    const warnings: string[] = [];
    const warn = (message: string): unknown => warnings.push(message);
    const engine = await fakeEngine(podman(true, filters), warn, folder);
    await engine.create(profile, never);
    rmSync(join(folder, "seccomp.json"));
    const both = [engine.create(profile, never), engine.create(profile, never)];
    expect(await Promise.all(both)).toEqual(["abc", "abc"]);
    for (const filter of filters.slice(1)) expect(filter).toEqual(asFile);
    expect(warnings).toEqual([]);
  });
});

describe("engine info", () => {
  const { fakeEngine } = fakeEngines();

  test.each([
    [
      { Rootless: true, CgroupVersion: "1", MemoryLimit: true },
      /rootless on cgroup v1.*run the engine as root/,
    ],
    [{ SecurityOptions: ["name=rootless"], CgroupVersion: "1" }, /rootless on cgroup v1/],
    [
      { MemoryLimit: false, CpuCfsQuota: true, PidsLimit: false },
      /cannot limit a job's memory, processes: /,
    ],
  ])("an engine that would run jobs without their limits is none: %o", async (info, words) => {
    const engine = await fakeEngine(saying({ ServerVersion: "4", ...info }));
    await expect(engine.describe(never)).rejects.toThrow(words);
  });

  test.each([
    { Rootless: true, CgroupVersion: "2" },
    { CgroupVersion: "1", PidsLimit: true },
  ])("an engine that holds limits is one: %o", async (info) => {
    const engine = await fakeEngine(saying({ ServerVersion: "4", ...info }));
    expect(await engine.describe(never)).toMatchObject({ available: true });
  });

  /** What Podman 5.4.2 says on cgroup v2 as root, and as a user whatever controllers that user has. */
  const podmanInfo = {
    ServerVersion: "5.4.2",
    BuildahVersion: "1.39.3",
    CgroupVersion: "2",
    MemoryLimit: true,
    CpuCfsQuota: false,
    PidsLimit: true,
  };

  function podmanWith(cgroupControllers: readonly string[]): Answer {
    return (request, response) => {
      const isOwn = /^\/v[0-9.]+\/libpod\/info$/.test(request.url ?? "");
      saying(isOwn ? { host: { cgroupControllers } } : podmanInfo)(request, response);
    };
  }

  test("Podman on cgroup v2 holds what its controllers limit, whatever it says of CPU limits", async () => {
    const engine = await fakeEngine(podmanWith(["cpuset", "cpu", "io", "memory", "pids"]));
    expect(await engine.describe(never)).toMatchObject({ available: true, version: "5.4.2" });
  });

  test.each([
    [["memory", "pids"], /cannot limit a job's CPU: .*controllers/],
    [["cpu"], /cannot limit a job's memory, processes: /],
    [[], /cannot limit a job's memory, CPU, processes: /],
  ])("Podman on cgroup v2 with the controllers %o is refused", async (controllers, words) => {
    const engine = await fakeEngine(podmanWith(controllers));
    await expect(engine.describe(never)).rejects.toThrow(words);
  });
});

const env = { HOME: "/home/ada", XDG_RUNTIME_DIR: "/run/user/1" };

it.each([
  ["tcp://a:1", { DOCKER_HOST: "tcp://b:2" }, [], "tcp://a:1"],
  [undefined, { DOCKER_HOST: "tcp://b:2" }, ["/var/run/docker.sock"], "tcp://b:2"],
  [undefined, env, ["/var/run/docker.sock"], "unix:///var/run/docker.sock"],
  [undefined, env, ["/run/user/1/docker.sock"], "unix:///run/user/1/docker.sock"],
  [
    undefined,
    env,
    ["/home/ada/.docker/run/docker.sock"],
    "unix:///home/ada/.docker/run/docker.sock",
  ],
  [undefined, env, ["/run/podman/podman.sock"], "unix:///run/podman/podman.sock"],
  [undefined, {}, [], "unix:///var/run/docker.sock"],
])("%s, %o, with %o: %s", (configured, env, sockets: string[], host) => {
  expect(engineHost(configured, env, (path) => sockets.includes(path))).toBe(host);
});

const mother = motherProfile(
  {
    rootfs: "rootfs",
    bundles: "bundles",
    agentId: "id",
    agentName: "name",
    slots: 1,
    memoryBytes: null,
    pids: 100,
  },
  "image",
  "lease",
);

test("what Podman would add to a read-only container is closed", () => {
  const profile = forPodman(containerProfile(specWith()));
  expect(profile.HostConfig.Tmpfs).toMatchObject({
    "/var/tmp": "ro,nosuid,nodev,noexec",
    "/run/lock": "ro,nosuid,nodev,noexec",
  });
});

test("a mother sees the whole /proc; the container of a job never", () => {
  expect(forPodman(mother).HostConfig.SecurityOpt).toContain("unmask=ALL");
  const { SecurityOpt } = forPodman(containerProfile(specWith())).HostConfig;
  expect(SecurityOpt).not.toContain("unmask=ALL");
});
