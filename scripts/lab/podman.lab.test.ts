import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { connectEngine } from "../../agent/engine/engine.ts";
import { testEngine } from "../../agent/testing/engine.ts";
import { runCode } from "../../agent/testing/run-code.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import { connect, pingEngine } from "../setup/engine.ts";
import { readEngineStream } from "../setup/set-up.ts";
import { mountsIn } from "../testing/machine.ts";
import { needs } from "../testing/needs.ts";
import { isRunning } from "../testing/start-process.ts";
import {
  type Json,
  startTestService,
  type TestAgent,
  type TestService,
} from "../testing/test-service.ts";

const dockerHost = process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock";

/** A user whose systemd runs without a login: the machine of scripts/lab/vm has one. */
const sessionUser = process.env["TEST_VM_USER"];
const whoHaveControllers: [who: string, start: () => Podman | Promise<Podman>][] = [
  ["as root", () => startPodman("root")],
  ...(sessionUser
    ? [
        ["of an ordinary user", () => startSessionPodman(sessionUser)] satisfies [
          string,
          () => Podman,
        ],
      ]
    : []),
];
/** What helm makes of the chart with confined pods: that machine has it as a file. */
const charts = [process.env["TEST_VM_CHART"] ?? []].flat();

async function withImage(podman: Podman): Promise<{ podman: Podman; image: string }> {
  const { image } = await testEngine();
  await podman.load(dockerHost, image);
  return { podman, image };
}

const whole = `
import json, sys
name = json.load(open("/input/data.json"))["name"]
print("hello", name)
print("warned", file=sys.stderr)
json.dump({"length": len(name)}, open("/output/result.json", "w"))
open("note.txt", "w").write("kept")
`;

const look = `
import ctypes, errno, json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *rest):
    return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(number, *rest) == -1 else "done"
def limit(*paths):
    found = [path for path in paths if os.path.exists("/sys/fs/cgroup/" + path)]
    return int(open("/sys/fs/cgroup/" + found[0]).read().split()[0])
writable = [top for top, _, _ in os.walk("/") if os.access(top, os.W_OK) and not top.startswith("/proc/")]
json.dump({
    "uid": os.getuid(),
    "rights": [status[name].strip() for name in ["CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"]],
    "calls": {"unshare": call(272, 0x10000000), "keyctl": call(250, 0, -3, 0), "ptrace": call(101, 0)},
    "writable": sorted(writable),
    "networks": os.listdir("/sys/class/net"),
    "hosts": open("/etc/hosts").read(),
    "limits": [
        limit("memory.max", "memory/memory.limit_in_bytes"),
        limit("pids.max", "pids/pids.max"),
        limit("cpu.max", "cpu/cpu.cfs_quota_us"),
    ],
}, open("/output/result.json", "w"))
`;

/**
 * Airlock's filter. Root's agent has it in a file that another user's Podman cannot read, so that Podman's own holds in
 * that user's containers; a fork has Airlock's there too.
 */
const airlocks = { unshare: "EPERM", keyctl: "EPERM", ptrace: "EPERM" };

describe.each(whoHaveControllers)("Podman %s", needs("root", "podman"), (who, start) => {
  let podman: Podman;
  let service: TestService;
  let agent: TestAgent;

  beforeAll(async () => {
    ({ podman } = await withImage(await start()));
    service = await startTestService({ agents: { AIRLOCK_DOCKER_HOST: podman.host } });
    agent = await service.startAgent("agent", { AIRLOCK_WARM_POOL_SIZE: "" });
  });
  afterAll(async () => {
    await service?.[Symbol.asyncDispose]();
    await podman?.[Symbol.asyncDispose]();
  });

  const containers = () => connect(podman.host).listContainers({ all: true });

  test("the engine is known by its version", async () => {
    const { json } = await service.send("GET", "/pool/stats");
    const { Version } = await connect(podman.host).version();
    expect(json).toMatchObject({ agents: [{ engine: { available: true, version: Version } }] });
  });

  test("a job runs to its end: input, streams, output, an artifact", async () => {
    const done = await service.execute(whole, { input_data: { name: "Ada" } });
    expect(done).toMatchObject({
      success: true,
      stdout: "hello Ada\n",
      stderr: "warned\n",
      output: { length: 3 },
    });
    const { text } = await service.send(
      "GET",
      `/jobs/${String(done["job_id"])}/artifacts/note.txt`,
    );
    expect(text).toBe("kept");
  });

  test("timeout, lack of memory and cancellation are told apart, and keep what was printed", async () => {
    const [late, large, cancelled] = await Promise.all([
      service.submit("print('late', flush=True)\nwhile True: pass", {}, { timeout: 3 }),
      service.submit("print('large', flush=True)\nx = bytearray(1 << 30)"),
      service.submit("import time\nprint('begun', flush=True)\ntime.sleep(600)"),
    ]);
    await service.untilStatus(cancelled, "running");
    expect((await service.send("POST", `/jobs/${cancelled}/cancel`, {})).status).toBe(200);
    const ends = await Promise.all([late, large, cancelled].map(service.ended));
    expect(ends).toMatchObject([
      { status: "timeout", stdout: "late\n", error: { type: "execution_timeout" } },
      { status: "oom", stdout: "large\n", error: { type: "oom" } },
      { status: "cancelled" },
    ]);
  });

  test("the code has its limits and a filter", async () => {
    const done = await service.execute(look);
    expect(done["stderr"]).toBe("");
    const none = "0000000000000000";
    expect(done["output"]).toEqual({
      uid: 1000,
      rights: [none, none, none, "1", "2"],
      calls: expect.objectContaining(who === "as root" ? airlocks : { ptrace: "EPERM" }) as object,
      writable: ["/dev/shm", "/output", "/tmp"],
      networks: ["lo"],
      hosts: expect.not.stringContaining("runsc") as string,
      limits: [512 * 1024 * 1024, 128, 100_000],
    });
  });

  test("the code of a container has a name", async () => {
    const { image } = await testEngine();
    const engine = connectEngine(podman.host);
    await engine.describe(AbortSignal.timeout(60_000));
    const code = "import pwd; print(pwd.getpwuid(1000).pw_name)";
    expect(await runCode({ engine, image }, code)).toMatchObject({ err: "", out: "user\n" });
  });

  test("what a killed agent left is removed by the next one of its name", async () => {
    const code = "import time\nprint('begun', flush=True)\ntime.sleep(600)";
    const id = await service.submit(code);
    await service.untilStatus(id, "running");
    await waitUntil("its container is there", async () => (await containers()).length > 0);
    const left = new Set((await containers()).map(({ Id }) => Id));
    agent.process.kill("SIGKILL");
    await agent.exit;
    const next = await service.startAgent();
    await waitUntil(
      "what was left is removed",
      async () => !(await containers()).some(({ Id }) => left.has(Id)),
    );
    next.process.kill("SIGTERM");
    await next.exit;
    expect(await containers()).toEqual([]);
  });
});

const unbounded = `
import os, time
x = bytearray(300 << 20)
n = 0
while n < 200:
    if os.fork() == 0:
        time.sleep(60)
    n += 1
print("no limit of memory or processes")
os.kill(-1, 9)
`;

const cgroupVersion = existsSync("/sys/fs/cgroup/cgroup.controllers") ? "2" : "1";
const refusal = {
  "1": /rootless on cgroup v1, where it holds none of a job's limits: .*cgroup v2.*run the engine as root/,
  "2": /the engine cannot limit a job's memory, CPU, processes: .*let the engine's user have its controllers/,
}[cgroupVersion];

/** Under systemd's own cgroup v2 the engine starts nothing for such a user, and says why. */
const withoutControllers = sessionUser === undefined ? ["without cgroup controllers"] : [];

describe.each(withoutControllers)("Podman of an ordinary user %s", needs("root", "podman"), () => {
  let podman: Podman;
  let image: string;

  beforeAll(async () => {
    ({ podman, image } = await withImage(await startPodman("user")));
  });
  afterAll(() => podman?.[Symbol.asyncDispose]());

  test("accepts limits and enforces none, although it says that it does", async () => {
    const info = (await connect(podman.host).info()) as Json;
    expect(info).toMatchObject({ Rootless: true, CgroupVersion: cgroupVersion, MemoryLimit: true });
    const { out } = await runCode({ engine: connectEngine(podman.host), image }, unbounded);
    expect(out).toBe("no limit of memory or processes\n");
  });

  test("is refused with a message that says what to do", async () => {
    await using service = await startTestService();
    const agent = await service.startAgent("agent", { AIRLOCK_DOCKER_HOST: podman.host });
    expect((await service.send("GET", "/health")).json).toMatchObject({ docker_available: false });
    expect((await service.send("POST", "/execute", { code: "print(1)" })).status).toBe(503);
    agent.process.kill("SIGTERM");
    await agent.exit;
    const said = await agent.stderr;
    expect(said).toMatch(/no jobs can run: /);
    expect(said).toMatch(refusal);
  });
});

const crowd = `
import os, time
children = []
try:
    while len(children) < 300:
        child = os.fork()
        if child == 0:
            time.sleep(600)
        children.append(child)
except BlockingIOError:
    print(len(children), flush=True)
time.sleep(600)
`;

describe.each(charts)("Podman in a confined pod of the chart", needs("root", "podman"), (chart) => {
  test("a container has its limits, and nothing is root's on the machine", async () => {
    await using pod = await startPodsPodman(chart);
    const { image } = await withImage(pod);
    const limits = { NetworkMode: "none", Memory: mib64, MemorySwap: mib64, PidsLimit: 20 };
    const start = async (code: string) => {
      const python = ["python3", "-c", code];
      const made = { Image: image, Cmd: python, HostConfig: limits };
      const container = await connect(pod.host).createContainer(made);
      await container.start();
      return container;
    };
    const crowded = await start(crowd);
    const said = async () => String(await crowded.logs({ stdout: true }));
    await waitUntil("the processes reach their limit", async () => (await said()).endsWith("19\n"));
    const users = pod.users();
    // The shell, the engine and the container's 20.
    expect(users.length).toBeGreaterThan(21);
    expect(users.filter((user) => user < firstOfPod)).toEqual([]);
    await crowded.remove({ force: true });
    expect(await (await start("x = bytearray(200 << 20)")).wait()).toMatchObject({
      StatusCode: 137,
    });
  });
});

/** Podman's Docker-compatible service; its files lie in one folder. */
type Podman = AsyncDisposable & {
  /** Such as unix:///…/podman.sock. */
  readonly host: string;
  /** Brings an image of another engine here, with its id, tags and labels. */
  readonly load: (fromHost: string, image: string) => Promise<void>;
};

/** A user of the test's own: made for it, and gone after it. */
const rootlessUser = "airlock-podman-test";

/** Podman asks for more processes than root may have without CAP_SYS_RESOURCE, as in some guests. */
const modestRunc = `#!/bin/sh
for arg; do
  [ -f "$arg/config.json" ] && sed -i 's/,{"type":"RLIMIT_NPROC"[^}]*}//' "$arg/config.json"
done
exec runc "$@"
`;

/** Starts a Podman as root, or as an ordinary user, and waits until it answers. */
async function startPodman(as: "root" | "user"): Promise<Podman> {
  const dir = mkdtempSync("/var/tmp/airlock-podman-");
  const owner = as === "root" ? { uid: 0, gid: 0 } : makeUser(dir);
  const socket = `${dir}/podman.sock`;
  writeFileSync(`${dir}/runc`, modestRunc);
  chmodSync(`${dir}/runc`, 0o755);
  writeFileSync(`${dir}/containers.conf`, settings(as, dir));
  mkdirSync(`${dir}/home`);
  mkdirSync(`${dir}/runtime`, { mode: 0o700 });
  for (const path of [dir, `${dir}/home`, `${dir}/runtime`]) chownSync(path, owner.uid, owner.gid);

  const log = openSync(`${dir}/podman.log`, "w");
  const places = [
    "--root",
    `${dir}/storage`,
    "--runroot",
    `${dir}/run`,
    "--storage-driver=overlay",
  ];
  const service = spawn("podman", [...places, "system", "service", "-t", "0", `unix://${socket}`], {
    cwd: "/",
    ...owner,
    stdio: ["ignore", log, log],
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: `${dir}/home`,
      XDG_RUNTIME_DIR: `${dir}/runtime`,
      CONTAINERS_CONF: `${dir}/containers.conf`,
    },
  });
  closeSync(log);
  const host = `unix://${socket}`;

  async function end(): Promise<void> {
    if (isRunning(service)) {
      service.kill("SIGTERM");
      await once(service, "exit");
    }
    // What keeps a user's namespaces outlives the service.
    if (as === "user") await endAllOf(owner.uid);
    for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
    rmSync(dir, { recursive: true });
    if (as === "user") execFileSync("userdel", [rootlessUser]);
  }

  while ((await pingEngine(host)).state !== "answers") {
    if (!isRunning(service)) {
      const said = readFileSync(`${dir}/podman.log`, "utf8");
      await end();
      throw new Error(`podman did not start:\n${said}`);
    }
    await sleep(50);
  }
  return { host, load: loadInto(host), [Symbol.asyncDispose]: end };
}

/** The Podman that an ordinary user's own systemd runs, which gives it the controllers that hold limits. */
function startSessionPodman(user: string): Podman {
  const runtime = `/run/user/${execFileSync("id", ["-u", user], { encoding: "utf8" }).trim()}`;
  const systemctl = (...args: string[]) =>
    execFileSync("runuser", ["-u", user, "--", "systemctl", "--user", ...args], {
      cwd: "/",
      env: {
        ...process.env,
        XDG_RUNTIME_DIR: runtime,
        DBUS_SESSION_BUS_ADDRESS: `unix:path=${runtime}/bus`,
      },
    });
  systemctl("start", "podman.socket");
  const host = `unix://${runtime}/podman/podman.sock`;
  return {
    host,
    load: loadInto(host),
    [Symbol.asyncDispose]: async () => void systemctl("stop", "podman.socket", "podman.service"),
  };
}

const mib64 = 64 << 20;
/** The first id of a pod's users on the machine. */
const firstOfPod = 100_000;

/** As much of the chart's objects as a test reads. */
type Rendered = {
  kind: string;
  data?: Record<string, string>;
  spec?: { template?: { spec: { initContainers?: Container[]; containers: Container[] } } };
};
type Container = {
  command: string[];
  args: string[];
  env: { name: string; value?: string }[];
  securityContext: {
    capabilities: { add: string[] };
    seccompProfile: { type: string };
    appArmorProfile: { type: string };
    procMount: string;
  };
  volumeMounts: { name: string; mountPath: string }[];
};

/**
 * The engine of the chart's confined pod: a container of root's Podman with the command, rights and volumes that the chart
 * gives it, in a user namespace, where it may write its control groups. Its files are those of the machine.
 */
async function startPodsPodman(rendered: string) {
  const objects = parseAllDocuments(readFileSync(rendered, "utf8")).map(
    (document) => document.toJS() as Rendered,
  );
  const pods = objects.flatMap(({ spec }) => spec?.template?.spec ?? []);
  const { initContainers = [], containers } = pods.find((pod) => pod.initContainers)!;
  const [engine, agent] = [initContainers[0]!, containers[0]!];
  const { capabilities, seccompProfile, appArmorProfile, procMount } = engine.securityContext;
  const dir = mkdtempSync("/var/tmp/airlock-podman-");
  chmodSync(dir, 0o755);
  const [root, config] = [join(dir, "root"), join(dir, "config")];
  mkdirSync(root);
  execFileSync("mount", ["--bind", "--make-private", "/", root]);
  const volumes = engine.volumeMounts.map(({ name, mountPath }) => {
    // Its socket is found there, inside and outside.
    const source = name === "shared" ? mountPath : join(dir, name);
    mkdirSync(source);
    chmodSync(source, 0o777);
    return { source, mount: `--volume=${source}:${mountPath}` };
  });
  const files = objects.find(({ kind }) => kind === "ConfigMap")?.data ?? {};
  for (const [name, text] of Object.entries(files)) writeFileSync(join(config, name), text);
  const options = [
    `seccomp=${seccompProfile.type.toLowerCase()}`,
    `apparmor=${appArmorProfile.type.toLowerCase()}`,
    "unmask=/sys/fs/cgroup",
    ...(procMount === "Unmasked" ? ["unmask=/proc/*"] : []),
  ];
  const podman = (...args: string[]) => execFileSync("podman", args, { encoding: "utf8" }).trim();
  const id = podman(
    "run",
    "--detach",
    `--uidmap=0:${firstOfPod}:65536`,
    `--gidmap=0:${firstOfPod}:65536`,
    "--network=none",
    `--cap-add=${capabilities.add.join(",")}`,
    ...options.map((option) => `--security-opt=${option}`),
    ...volumes.map(({ mount }) => mount),
    "--rootfs",
    `${root}:idmap`,
    ...engine.command,
    ...engine.args,
  );
  async function end(): Promise<void> {
    podman("rm", "--force", "--time=30", id);
    for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
    for (const { source } of volumes) rmSync(source, { recursive: true });
    rmSync(dir, { recursive: true });
  }
  const host = agent.env.find(({ name }) => name === "AIRLOCK_DOCKER_HOST")!.value!;
  await waitUntil(
    "the pod's engine answers",
    async () => (await pingEngine(host)).state === "answers",
  );
  return {
    host,
    /** Whose its processes and those of its containers are on the machine. */
    users: () =>
      execFileSync("ps", ["-ewwo", "uid=,cgroup="], { encoding: "utf8" })
        .split("\n")
        .filter((line) => line.includes(`libpod-${id}`))
        .map((line) => Number.parseInt(line, 10)),
    load: loadInto(host),
    [Symbol.asyncDispose]: end,
  };
}

const loadInto =
  (host: string): Podman["load"] =>
  async (fromHost, image) => {
    const archive = await connect(fromHost).getImage(image).get();
    const progress = await connect(host).loadImage(archive);
    await readEngineStream(progress);
  };

function settings(as: "root" | "user", dir: string): string {
  return `[containers]
base_hosts_file = "none"
[engine]
runtime = "${as === "root" ? "modest-runc" : "runc"}"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
modest-runc = ["${dir}/runc"]
`;
}

/** Adds the user, and with it the ids that its containers map theirs to. */
function makeUser(dir: string): { uid: number; gid: number } {
  if (idOf("-u") === null) {
    execFileSync("useradd", ["--no-create-home", "--home-dir", `${dir}/home`, rootlessUser]);
  }
  return { uid: idOf("-u") ?? -1, gid: idOf("-g") ?? -1 };
}

function idOf(which: "-u" | "-g"): number | null {
  try {
    return Number(execFileSync("id", [which, rootlessUser], { stdio: "pipe" }).toString());
  } catch {
    return null;
  }
}

async function endAllOf(uid: number): Promise<void> {
  for (let own = processesOf(uid); own.length > 0; own = processesOf(uid)) {
    for (const pid of own) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It ended by itself.
      }
    }
    await sleep(20);
  }
}

/** The user's own processes; those of its containers have other ids, and end with their PID 1. */
function processesOf(uid: number): number[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      return /^\d+$/.test(name) && statSync(`/proc/${name}`).uid === uid ? Number(name) : [];
    } catch {
      return [];
    }
  });
}
