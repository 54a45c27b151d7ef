import { once } from "node:events";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener, type Server, type ServerResponse } from "node:http";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import {
  addRunsc,
  connect,
  engineHosts,
  type EngineSearch,
  findEngine,
  isOrphan,
  type Machine,
  MACHINE_DOCKERD,
  noEngineAdvice,
  pingEngine,
  type PingResult,
  readPidFile,
  readProcess,
  registerRunsc,
} from "./engine.ts";
import { ensureBaseImage, findBaseImage, pullImage } from "./set-up.ts";
import { standInsFor } from "./steps.ts";

test("a configured docker_host is the only candidate, before DOCKER_HOST", () => {
  expect(engineHosts("tcp://a:1", { DOCKER_HOST: "tcp://b:2" })).toEqual({
    hosts: ["tcp://a:1"],
    setBy: "docker_host",
  });
});

test("DOCKER_HOST is the only candidate if it is set", () => {
  expect(engineHosts(undefined, { DOCKER_HOST: "tcp://b:2" })).toEqual({
    hosts: ["tcp://b:2"],
    setBy: "DOCKER_HOST",
  });
});

test("else the sockets are tried, Docker's before Podman's", () => {
  const { hosts, setBy } = engineHosts(undefined, { XDG_RUNTIME_DIR: "/run/user/7", HOME: "/h" });
  expect(setBy).toBeUndefined();
  expect(hosts).toEqual([
    "unix:///var/run/docker.sock",
    "unix:///run/user/7/docker.sock",
    "unix:///h/.docker/run/docker.sock",
    "unix:///run/user/7/podman/podman.sock",
    "unix:///run/podman/podman.sock",
  ]);
});

test("an empty setting counts as none", () => {
  expect(engineHosts("", { DOCKER_HOST: "" }).hosts).toEqual([
    "unix:///var/run/docker.sock",
    "unix:///run/podman/podman.sock",
  ]);
});

describe("find engine", () => {
  let dir: string;
  beforeEach(() => {
    dir = tempFolder();
  });

  async function listen(path: string, answer: RequestListener): Promise<() => void> {
    const server = createServer(answer).listen(path);
    await once(server, "listening");
    const close = (): void => {
      server.close();
      server.closeAllConnections();
    };
    onTestFinished(close);
    return close;
  }

  test("finds the engine that answers", async () => {
    await listen(join(dir, "engine.sock"), (_request, response) => response.end("OK"));
    const host = `unix://${dir}/engine.sock`;
    expect(await findEngine(host, {})).toMatchObject({ found: host });
  });

  test("distinguishes a missing socket from one whose engine is gone", async () => {
    const absent = await findEngine(`unix://${dir}/none.sock`, {});
    expect(absent.found).toBeUndefined();
    expect(absent.pings[0]).toMatchObject({ state: "absent" });

    const close = await listen(join(dir, "live.sock"), () => {});
    renameSync(join(dir, "live.sock"), join(dir, "stale.sock"));
    close();
    const stale = await findEngine(`unix://${dir}/stale.sock`, {});
    expect(stale.pings[0]).toMatchObject({ state: "silent", reason: "nothing listens there" });
  });

  test("gives up on an engine that takes the connection and says nothing", async () => {
    await listen(join(dir, "hung.sock"), () => {});
    const ping = await pingEngine(`unix://${dir}/hung.sock`, 500);
    expect(ping).toMatchObject({ state: "silent", reason: "no answer within 0.5 s" });
  });

  test("waits for an engine that its socket starts only now", async () => {
    await listen(join(dir, "slow.sock"), (_request, response) => {
      setTimeout(() => response.end("OK"), 4000);
    });
    const host = `unix://${dir}/slow.sock`;
    expect(await findEngine(host, {})).toMatchObject({ found: host });
  });

  test("an engine that answers with an error is silent, with that error as the reason", async () => {
    await listen(join(dir, "ill.sock"), (_request, response) => response.writeHead(500).end("ill"));
    const { pings } = await findEngine(`unix://${dir}/ill.sock`, {});
    expect(pings[0]?.state).toBe("silent");
    expect(pings[0]?.reason).toContain("500");
  });
});

describe("no engine", () => {
  const DOCKER = "unix:///var/run/docker.sock";
  const server: Machine = { platform: "linux", root: true, apt: true, podman: false };
  const user: Machine = { ...server, root: false };

  function search(state: PingResult["state"], setBy?: EngineSearch["setBy"]): EngineSearch {
    const pings = [{ host: DOCKER, state, reason: "why" }];
    return { hosts: [DOCKER], pings, ...(setBy ? { setBy } : {}) };
  }

  test("Podman's folder, which belongs to root, does not count as an engine of the user", () => {
    const pings = [
      { host: DOCKER, state: "absent" as const, reason: "no such socket" },
      { host: "unix:///run/podman/podman.sock", state: "denied" as const, reason: "no permission" },
    ];
    const advice = noEngineAdvice({ hosts: [], pings }, { ...user, podman: true });
    expect(advice).toContain("systemctl --user enable --now podman.socket");
  });

  test("root with apt needs no advice: set-up installs or starts the engine", () => {
    expect(noEngineAdvice(search("absent"), server)).toBeUndefined();
    expect(noEngineAdvice(search("silent"), server)).toBeUndefined();
  });

  test.each<[string, EngineSearch, Machine, string]>([
    ["set but dead", search("silent", "DOCKER_HOST"), server, "unset DOCKER_HOST"],
    ["no permission", search("denied"), user, "usermod -aG docker"],
    ["not root", search("absent"), user, "sudo apt-get install docker.io"],
    [
      "Podman without its socket",
      search("absent"),
      { ...user, podman: true },
      "systemctl --user enable --now podman.socket",
    ],
    ["installed, stopped", search("silent"), user, "sudo systemctl start docker"],
    ["no apt", search("absent"), { ...server, apt: false }, "package manager"],
    ["a Mac", search("absent"), { ...user, platform: "darwin", apt: false }, "Docker Desktop"],
  ])("says in two lines what is wrong and what to do: %s", (_name, found, machine, advice) => {
    const [problem, remedy, ...rest] = noEngineAdvice(found, machine)!.split("\n");
    expect(problem).toContain(DOCKER);
    expect(remedy).toContain(advice);
    expect(rest).toEqual([]);
  });
});

describe("daemon json", () => {
  const runsc = { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] };
  let dir: string;

  beforeEach(() => {
    dir = tempFolder();
  });

  test.each([
    ["no file", undefined, { runtimes: { runsc } }],
    ["an empty file", "\n", { runtimes: { runsc } }],
    ["other settings", '{"debug":true}', { debug: true, runtimes: { runsc } }],
    ["another runtime", '{"runtimes":{"x":{}}}', { runtimes: { x: {}, runsc } }],
  ])("adds runsc to %s and keeps the rest", (_name, text, expected) => {
    expect(JSON.parse(addRunsc(text) ?? "")).toEqual(expected);
  });

  test("leaves a configured runsc alone", () => {
    expect(addRunsc('{"runtimes":{"runsc":{"path":"/opt/runsc"}}}')).toBeUndefined();
  });

  test("writes the file once", () => {
    const file = join(dir, "docker/daemon.json");
    expect(registerRunsc(file)).toBe(true);
    expect(registerRunsc(file)).toBe(false);
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ runtimes: { runsc } });
  });

  test("refuses to touch a file that is not JSON", () => {
    const file = join(dir, "daemon.json");
    writeFileSync(file, "{oops");
    expect(() => registerRunsc(file)).toThrow("is not valid JSON");
    expect(readFileSync(file, "utf8")).toBe("{oops");
  });
});

const containerd = {
  pid: 7,
  parentPid: 1,
  name: "containerd",
  args: ["containerd", "--config", "/var/run/docker/containerd/containerd.toml"],
};
const init = { pid: 1, parentPid: 0, name: "systemd", args: [] };

test("only a containerd of this dockerd whose parent is gone is an orphan", () => {
  expect(isOrphan(containerd, MACHINE_DOCKERD, init)).toBe(true);
  expect(isOrphan(containerd, MACHINE_DOCKERD, undefined)).toBe(true);
  expect(isOrphan(containerd, MACHINE_DOCKERD, { ...init, name: "dockerd" })).toBe(false);
  expect(isOrphan({ ...containerd, name: "postgres" }, MACHINE_DOCKERD, init)).toBe(false);
  expect(isOrphan({ ...containerd, args: ["containerd"] }, MACHINE_DOCKERD, init)).toBe(false);
});

test("reads this process from /proc, and nothing if it does not exist", () => {
  expect(readProcess(process.pid)).toMatchObject({ parentPid: process.ppid });
  expect(readProcess(2 ** 22 + 1)).toBeUndefined();
  expect(readPidFile("/nowhere.pid")).toBeUndefined();
});

describe("base image", () => {
  const IMAGE = "registry.test/tool:1";

  let dir: string;
  let server: Server;
  let requests: string[];
  /** What the fake engine has, and how it answers a pull. */
  let images: string[];
  let labelled: ReturnType<typeof image>[];
  let pull: (response: ServerResponse) => void;

  beforeEach(async () => {
    dir = tempFolder();
    [images, labelled, requests] = [[], [], []];
    server = createServer((request, response) => {
      const url = decodeURIComponent(request.url ?? "");
      requests.push(`${request.method} ${url}`);
      if (url.startsWith("/images/create")) pull(response);
      else if (url.startsWith("/images/json")) response.end(JSON.stringify(labelled));
      else if (images.includes(url.slice("/images/".length, -"/json".length))) response.end("{}");
      else if (inspected(url)) response.end(JSON.stringify(inspected(url)));
      else response.writeHead(404).end('{"message":"no such image"}');
    }).listen(join(dir, "engine.sock"));
    await once(server, "listening");
  });

  afterEach(() => {
    server.close();
    server.closeAllConnections();
  });

  const image = (Id: string, RepoTags: string[] | null, year = 2026, ...Layers: string[]) => ({
    Id,
    RepoTags,
    Created: `${year}-01-01T00:00:00Z`,
    RootFS: { Layers: ["sha256:0", ...Layers] },
  });

  /** A labelled image that is asked for by its id. */
  const inspected = (url: string) => labelled.find(({ Id }) => url === `/images/${Id}/json`);

  const engine = () => connect(`unix://${dir}/engine.sock`);

  test("an image that the engine has is used as it is", async () => {
    images = [IMAGE];
    expect(await ensureBaseImage(engine(), IMAGE)).toBe(IMAGE);
    expect(requests).toEqual([`GET /images/${IMAGE}/json`]);
  });

  test("a stand-in is found by its label", async () => {
    labelled = [image("sha256:1", ["airlock/python:3.13"])];
    expect(await findBaseImage(engine(), IMAGE)).toBe("airlock/python:3.13");
    expect(requests[1]).toContain(`{"label":["io.airlock.stands-in-for=${IMAGE}"]}`);
    labelled = [image("sha256:1", null)];
    expect(await findBaseImage(engine(), IMAGE)).toBe("sha256:1");
  });

  test("an image derived from a stand-in, which has its label, is not a stand-in", async () => {
    labelled = [
      image("sha256:3", ["team/app:1"], 2027),
      image("sha256:2", ["team/app:1"], 2025, "sha256:5"),
      image("sha256:1", ["airlock/python:3.13"]),
    ];
    expect(await findBaseImage(engine(), IMAGE)).toBe("airlock/python:3.13");
    labelled = labelled.slice(1, 2);
    expect(await findBaseImage(engine(), IMAGE)).toBeUndefined();
  });

  test("a missing image is pulled", async () => {
    pull = (response) => {
      response.write('{"status":"Downloading","id":"a","progressDetail":{"current":5}}\r\n');
      response.end('{"status":"Download complete","id":"a"}\r\n');
    };
    expect(await ensureBaseImage(engine(), IMAGE)).toBe(IMAGE);
    expect(requests.at(-1)).toBe("POST /images/create?fromImage=registry.test/tool&tag=1");
  });

  test("an image that nobody can pull or replace is an error with the reason and a way out", async () => {
    pull = (response) => response.end('{"error":"manifest unknown"}\r\n');
    await expect(ensureBaseImage(engine(), IMAGE)).rejects.toThrow(
      /registry\.test\/tool:1 is missing and cannot be pulled: manifest unknown[^]*set base_image/,
    );
  });

  test("a full disk is reported as such", async () => {
    pull = (response) => response.end('{"error":"write /x: no space left on device"}\r\n');
    await expect(ensureBaseImage(engine(), IMAGE)).rejects.toThrow("the engine's disk is full");
  });

  test.each([
    ["before it answers", () => {}],
    ["half-way", (response: ServerResponse) => void response.write('{"status":"Pulling"}\r\n')],
  ])("a registry that goes silent %s is given up", async (_when, answer) => {
    pull = answer;
    await expect(pullImage(engine(), IMAGE, 50)).rejects.toThrow("sent nothing for 0.05 s");
  });
});

test.each([
  ["python:3.13-slim", ["trixie", "bookworm"]],
  ["python:3.13", ["trixie", "bookworm"]],
  ["docker.io/library/python:3.13.5-slim-bookworm", ["trixie", "bookworm"]],
  ["python:3.11-slim", ["bookworm"]],
  ["python:3.12-slim", []],
  ["python:3.13-alpine3.20", []],
  ["pytorch/pytorch:2.4", []],
  ["python", []],
])("%s can be replaced by Debian %j", (image, suites) => {
  expect(standInsFor(image).map((standIn) => standIn.suite)).toEqual(suites);
});
