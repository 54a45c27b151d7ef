import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename } from "node:path";
import { getLogger } from "@logtape/logtape";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Engine } from "../engine/engine.ts";
import { openConversation } from "../sandbox/conversation.ts";
import { startForks } from "../testing/backend.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import { createPoolWorld } from "../testing/fakes.ts";
import { ends, lastActs } from "../testing/programs.ts";
import { comparable, type Outcome, outcomeOf } from "../testing/python-rows.ts";
import { containersOf, imageWithModules, rawEngine, removeImages } from "../testing/raw-engine.ts";
import { runCode, runIn } from "../testing/run-code.ts";
import { systemClock } from "../waiting.ts";
import { chooseSandbox } from "./choose.ts";
import { createMotherKeeper } from "./forks.ts";
import type { Mother } from "./mother.ts";
import { createRootfsStore } from "./volumes.ts";
import { createZygotes, topImports } from "./zygotes.ts";

describe("preloads", async () => {
  /** Modules of an image that are not as modules should be. */
  const modules = {
    // Keeps a copy of every descriptor that its process has when it forks.
    hoarder: `
import os
def keep_all():
    for name in os.listdir("/proc/self/fd"):
        try: os.dup(int(name))
        except OSError: pass
os.register_at_fork(before=keep_all)`,
    blocker: "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    limiter: "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))",
    large: "data = bytearray(b'x') * 150_000_000",
    thread:
      "import threading, time; threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()",
    crash: "print('so far', flush=True); import ctypes; ctypes.string_at(0)",
    hang: "import time; time.sleep(3600)",
  };

  const place = await testEngine();
  let image = "";
  beforeAll(async () => {
    image = await imageWithModules(place.image, modules);
  });
  afterAll(() => removeImages(image));

  test("jobs end, and others run, where a preload keeps their streams open", async () => {
    const settings = { spec: { image, preload: ["hoarder"] }, backend: "zygote" };
    for (let jobs = 0; jobs < 2; jobs++) {
      const { end, out } = await runCode(place, "print('hi')", settings);
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "hi\n" });
    }
  });

  test("a preload that blocks signals blocks the code's, and its end is still noticed", async () => {
    const code =
      "import signal; print(signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, []))";
    const settings = { spec: { image, preload: ["blocker"] }, backend: "zygote" };
    const { end, out } = await runCode(place, code, settings);
    expect({ end, out }).toEqual({ end: "succeeded - 0", out: "True\n" });
  });

  test.each([
    ["large", "what is preloaded takes 1[0-9]{2} MiB, more than half of memory_limit"],
    ["thread", "a preloaded module has started a thread"],
    ["crash", "the zygote ended: so far"],
    ["limiter", "the zygote ended: .*Resource temporarily unavailable"],
    ["hang", "what it preloads took longer than 15 s"],
  ])("a preload that is bad for forks is refused with the reason: %s", async (name, reason) => {
    const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
    const forks = startForks(place, {
      mother: labels,
      zygoteStartMs: name === "hang" ? 15_000 : 120_000,
    });
    try {
      const limit = AbortSignal.timeout(120_000);
      // The mother and the files of the image are there before the time of the bad preload begins.
      await (await forks.open(specWith({ image, labels }), limit)).close();
      const spec = specWith({ image, labels, preload: [name], memoryBytes: 256 * 1024 ** 2 });
      await expect(forks.open(spec, limit)).rejects.toThrow(new RegExp(reason, "s"));
    } finally {
      await forks.close();
    }
  });
});

describe("learned preloads", async () => {
  const slow = "import os, time; time.sleep(0.05); born_in = os.getpid()";

  /** Modules that are not learned, by what the import of each does that no fork would have or have for itself. */
  const alone = {
    "starts a thread":
      "import threading\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()",
    "writes a file": 'open("/tmp/written", "w").close()',
    "makes shared memory": 'open("/dev/shm/written", "w").close()',
    "prints to stdout": 'print("Hello from the community.")',
    "writes to stderr": "os.write(2, b'careful')",
    "starts a process": "import subprocess\nchild = subprocess.Popen(['sleep', '60'])",
    "sets a timer": "import signal\nsignal.setitimer(signal.ITIMER_VIRTUAL, 60)",
    "waits for children": "import signal\nsignal.signal(signal.SIGCHLD, lambda *_: None)",
    "changes its folder": 'os.chdir("/tmp")',
    "makes a UUID": "import uuid\nid = uuid.uuid4()",
    "makes a token": "import secrets\ntoken = secrets.token_hex()",
    "draws a class attribute": "import random\nclass Client: id = random.random()",
    "draws from a generator that is gone": "import random\nid = random.Random().random()",
    "seeds the generator of all": "import random\nrandom.seed(7)",
  };
  const moduleOf = (what: string): string => what.replaceAll(" ", "_");

  const never = new AbortController().signal;

  const place = await testEngine();
  const image = await imageWithModules(place.image, {
    slowly: slow,
    at_random: `${slow}
import random
class Client: random = random.Random()
own, given = random.Random(), random.Random(7)
own.random()
own.seed()`,
    ...Object.fromEntries(
      Object.entries(alone).flatMap(([what, does]) => [
        [moduleOf(what), `${slow}\n${does}`],
        [`after_${moduleOf(what)}`, slow],
      ]),
    ),
  });
  const forks = startForks(place);
  const source = chooseSandbox({
    containers: createPoolWorld(0).pool,
    forks,
    mustFork: true,
    slots: 2,
    idleMs: 0,
    clock: systemClock,
    log: getLogger("test"),
  });
  afterAll(async () => {
    await source.close();
    await removeImages();
  });

  async function run(code: string, tenant = "a"): Promise<string> {
    const request = {
      jobType: "default",
      tenant,
      spec: specWith({ image }),
      packages: null,
      files: [],
    };
    const sandbox = await source.acquire({ ...request, imports: topImports(code) }, never);
    const caps = { streamBytes: 10_000, artifactBytes: 0 };
    const job = { code, inputJson: "{}", timeoutMs: 60_000, caps };
    const { stdout, stderr } = await sandbox.run(job, { signal: never, spoolDir: tmpdir() });
    await source.giveBack(sandbox);
    return Buffer.concat([stdout, stderr]).toString();
  }

  const bornHere = (module: string): Promise<string> =>
    run(`import ${module}\nimport os\nprint(${module}.born_in == os.getpid())`);

  /** Resolves when jobs find the module imported. */
  async function untilLearned(module: string): Promise<void> {
    const learned = async () => expect(await bornHere(module)).toBe("False\n");
    await vi.waitFor(learned, { timeout: 60_000, interval: 10 });
  }

  test("a module that jobs import again and again is imported ahead for them, and for no others", async () => {
    const found = [await bornHere("slowly"), await bornHere("slowly"), await bornHere("slowly")];
    expect(found).toEqual(["True\n", "True\n", "True\n"]);
    await untilLearned("slowly");
    expect(await run("import sys\nprint('slowly' in sys.modules)")).toBe("False\n");
  });

  test("a learned module's generators are seeded anew in each fork, but for those that it has seeded with a number", async () => {
    await untilLearned("at_random");
    const code = `import at_random
import os
import random
print(at_random.born_in == os.getpid(), at_random.given.random(), at_random.own.random(), at_random.Client.random.random(), random.random())`;
    const drawn = [await run(code), await run(code)].map((out) => out.trim().split(" "));
    for (const [here, given] of drawn)
      expect([here, given]).toEqual(["False", "0.32383276483316237"]);
    expect(new Set(drawn.flatMap(([, , ...others]) => others)).size).toBe(6);
  });

  test.each(Object.keys(alone))("jobs go on importing themselves what %s", async (what) => {
    const module = moduleOf(what);
    for (let n = 0; n < 3; n++) expect(await bornHere(module)).toContain("True\n");
    // Modules are tried one after the other, so this one's turn comes when the first one has been tried.
    await untilLearned(`after_${module}`);
    expect(await bornHere(module)).toContain("True\n");
  });
});

/** What may look different in a fork than in a container, and why. */
const reasons: readonly (readonly [RegExp, string])[] = [
  [/^classes$/, "those of PID 1's modules live on; localhost's name takes unicodedata"],
  [/^control groups|^mounts \/sys\/fs\/cgroup/, "only the groups of memory, processes and CPU"],
  [/^filters$/, "the filters of mother and zygote lie under the job's"],
  [/^limits RLIMIT_SIGPENDING$/, "each fork has its part of what the host allows its creator"],
  [/^localhost$|^names$|^mounts \/etc\//, "its /etc is a copy: localhost has a name there"],
  [/^mounts \/dev(\/(full|null|random|tty|urandom|zero))?$/, "device files are the mother's"],
  [/^mounts (\/proc\/|\/sys\/firmware)/, "what is masked shows an empty folder of the zygote's"],
  [/^mounts \/$/, "its files are on a volume, without devices and set-uid programs"],
  [/^processes$/, "PID 1 starts no other process before the code"],
  [/^root$/, "/proc and /sys belong to nobody; /packages is always there"],
  [/^user namespace$/, "it has one"],
];

test("a fork sees what code in a container of its own sees, but for a list", async () => {
  const place = await testEngine();
  const code = readFileSync(new URL("../testing/programs/view.py", import.meta.url), "utf8");
  const spec = { env: { A: "b" }, preload: ["json"] };
  const [engine, zygote] = await Promise.all(
    ["engine", "zygote"].map(async (backend) => {
      const { out, err, end } = await runCode(place, code, { spec, backend });
      expect({ err, end }).toEqual({ err: "", end: "succeeded - 0" });
      return flat(JSON.parse(out) as Record<string, unknown>);
    }),
  );
  const names = [...new Set([...Object.keys(engine!), ...Object.keys(zygote!)])];
  const differing = names.filter((name) => engine![name] !== zygote![name]);
  const explained = (name: string): boolean => reasons.some(([which]) => which.test(name));
  const unexplained = differing.filter((name) => !explained(name));
  expect(unexplained.map((name) => [name, engine![name], zygote![name]])).toEqual([]);
  const masks = Object.entries(zygote!).filter(([name]) =>
    /^mounts (\/proc\/|\/sys\/f)/.test(name),
  );
  expect(masks.filter(([, how]) => !how.includes('"noexec","nosuid","ro"'))).toEqual([]);
  // They would come from `compile`, and each job would end with them: 0.4 ms.
  expect(zygote!["classes"]).not.toContain('"ast"');
  expect(names).toEqual(
    expect.arrayContaining(["identity", "limits RLIMIT_NOFILE", "environment", "mounts /tmp"]),
  );
});

/** JSON by name; each mount and each limit by itself. */
function flat({ mounts, limits, ...rest }: Record<string, unknown>): Record<string, string> {
  const each = Object.entries({ mounts, limits }).flatMap(([kind, values]) =>
    Object.entries(values as object).map(([name, value]) => [`${kind} ${name}`, value] as const),
  );
  const all = [...Object.entries(rest), ...each];
  return Object.fromEntries(all.map(([name, value]) => [name, JSON.stringify(value)]));
}

describe("ends", () => {
  const programs: Readonly<Record<string, string>> = { ...ends, ...lastActs };

  /** Runs each program in an interpreter of its own, which no gate has prepared. */
  const runAll = `import base64, json, os, shutil, subprocess
os.mkdir("/dev/shm/code")
outcomes = {}
for name, code in json.load(open("/input/data.json")).items():
    for entry in os.scandir("/tmp"):
        shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
    with open("/dev/shm/code/main.py", "w") as file: file.write(code)
    run = subprocess.run(["python3", "/dev/shm/code/main.py"], stdin=-3, stdout=-1, stderr=-1, start_new_session=True)
    texts = [text.decode("latin-1").replace("/dev/shm/code/", "/code/") for text in (run.stdout, run.stderr)]
    outcomes[name] = dict(zip(("exit", "stdout", "stderr"), (run.returncode, *texts)))
print(json.dumps(outcomes))`;

  let place: Awaited<ReturnType<typeof testEngine>>;
  let plain: Record<string, Outcome>;
  beforeAll(async () => {
    place = await testEngine();
    const job = { inputJson: JSON.stringify(programs) };
    const { out, err } = await runCode(place, runAll, { backend: "zygote", job });
    if (err !== "") throw new Error(err);
    plain = JSON.parse(out) as Record<string, Outcome>;
  });

  test.each(Object.entries(programs))("%s, in a fork as under python3", async (name, code) => {
    const { report } = await runCode(place, code, { backend: "zygote" });
    expect(comparable(outcomeOf(report))).toEqual(comparable(plain[name]));
  });
});

const agentName = `replaced-${randomUUID()}`;

test("a job runs on in its mother when another has ended there, and no descriptor of that one stays", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const forks = startForks({ engine, image }, { mother: labels });
  const signal = AbortSignal.timeout(60_000);
  try {
    const open = () => forks.open(specWith({ image, labels }), signal);
    const [first, second] = [await open(), await open()];
    expect(second.containerId).toBe(first.containerId);
    const { State } = await rawEngine.getContainer(first.containerId).inspect();
    const left: number[] = [];
    for (const next of [() => first, () => second, open]) {
      const sandbox = await next();
      const report = await runIn(sandbox, "print('hi')");
      expect(Buffer.from(report.stdout).toString("utf8")).toBe("hi\n");
      await sandbox.close();
      left.push(readdirSync(`/proc/${State.Pid}/fd`).length);
    }
    expect(left[2]).toBe(left[1]);
  } finally {
    await forks.close();
  }
});

test("a mother is replaced after a while, and ends with its last job", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const mother = { ...labels, memoryBytes: 2 ** 30, pids: 512 };
  const forks = startForks({ engine, image }, { mother, motherMs: 0 });
  const signal = AbortSignal.timeout(60_000);
  try {
    const [first, second] = [
      await forks.open(specWith({ image, labels }), signal),
      await forks.open(specWith({ image, labels, env: { OTHER: "kind" } }), signal),
    ];
    expect(second.containerId).not.toBe(first.containerId);
    for (const sandbox of [first, second]) {
      const report = await runIn(sandbox, "print('hi')");
      expect(Buffer.from(report.stdout).toString("utf8")).toBe("hi\n");
      await sandbox.close();
    }
    await vi.waitFor(async () => expect(await containersOf(agentName)).toHaveLength(1), {
      timeout: 30_000,
    });
  } finally {
    await forks.close();
  }
  expect(await containersOf(agentName)).toEqual([]);
});

test("a mother that is replaced while a zygote starts ends after the jobs that waited for it", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const volumes = { rootfs: "airlock-rootfs-tests", bundles: "airlock-bundles-tests" };
  const keeper = createMotherKeeper({
    engine,
    mother: { ...labels, ...volumes, slots: 1, memoryBytes: null, pids: 512 },
    motherImage: () => Promise.resolve(image),
    ids: [0x7000_0000, 65_536],
  });
  const retired = Promise.withResolvers<Mother>();
  const zygotes = createZygotes({
    engine,
    rootfs: createRootfsStore(keeper.volume),
    async mother() {
      const started = await keeper.current();
      const startZygote: Mother["startZygote"] = (order, limit) => {
        const zygote = started.startZygote(order, limit);
        started.retire();
        retired.resolve(started);
        return zygote;
      };
      return { ...started, startZygote };
    },
  });
  try {
    const { zygote } = await zygotes.of(specWith({ image, labels }));
    const limit = AbortSignal.timeout(60_000);
    const sizes = { memory: 2 ** 28, shm: 2 ** 20, writable: 2 ** 20 };
    const job = zygote.open({ ...sizes, pids: 32, cpus: 1, packages: "", files: [] });
    await openConversation(job.channel.link, limit);
    await job.close();
    const { died } = await retired.promise;
    await vi.waitFor(() => expect(died.aborted).toBe(true), 30_000);
  } finally {
    await keeper.close();
  }
});

test("after its image is removed, a zygote still serves jobs, and no new zygote starts", async () => {
  const place = await testEngine();
  const image = await imageWithModules(place.image, { mark: `mark = "${randomUUID()}"` });
  const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
  const forks = startForks(place, { mother: labels });
  const limit = AbortSignal.timeout(120_000);
  const open = (env: Record<string, string>) => forks.open(specWith({ image, labels, env }), limit);
  try {
    const first = await open({});
    await removeImages(image);
    await (await open({})).close();
    expect(first.died.aborted).toBe(false);
    await first.close();
    await expect(open({ OTHER: "kind" })).rejects.toMatchObject({
      name: "EngineError",
      code: "image_not_found",
    });
    // The mother still serves jobs of other images.
    await (await forks.open(specWith({ image: place.image, labels }), limit)).close();
  } finally {
    await forks.close();
    await removeImages(image);
  }
});

test("a mother that cannot mount control groups fails with the reason, and its container is removed", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName: `no-groups-${randomUUID()}`, leaseId: null };
  // Without the writable folder in which the mother mounts control groups.
  const create: Engine["create"] = (profile, signal) =>
    engine.create(
      { ...profile, HostConfig: { ...profile.HostConfig, Tmpfs: {} } } as never,
      signal,
    );
  const forks = startForks({ engine: { ...engine, create }, image }, { mother: labels });
  try {
    const opening = forks.open(specWith({ image, labels }), AbortSignal.timeout(60_000));
    await expect(opening).rejects.toThrow(/the mother ended: .*Read-only file system/s);
    await expect.poll(() => containersOf(labels.agentName), { timeout: 30_000 }).toEqual([]);
  } finally {
    await forks.close();
  }
});

test.each([
  // The kernel takes a memory limit, but no quota below a millisecond.
  ["job", { cpus: 0.001 }, 1],
  ["zygote", { pids: -5 }, 2],
])(
  "a %s whose limits the kernel refuses never starts, and leaves no control group",
  async (_, wrong, zygotes) => {
    const place = await testEngine();
    const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
    const forks = startForks(place, { mother: labels });
    const spec = specWith({ image: place.image, labels });
    const limit = AbortSignal.timeout(120_000);
    try {
      const sandbox = await forks.open(spec, limit);
      const { State } = await rawEngine.getContainer(sandbox.containerId).inspect();
      await sandbox.close();
      await expect(forks.open({ ...spec, ...wrong }, limit)).rejects.toThrow("Invalid argument");
      // Only zygotes have groups: the probe's, and that of the first job unless the failed job had it replaced.
      await vi.waitFor(() => expect(groupsOf(State.Pid)).toHaveLength(zygotes), 60_000);
      expect(groupsOf(State.Pid).filter((name) => name.startsWith("job"))).toEqual([]);
    } finally {
      await forks.close();
    }
  },
);

/** The control groups that a mother has made, on cgroup v1 and v2, by name. */
function groupsOf(pid: number): string[] {
  const folders = readdirSync(`/proc/${pid}/root/run/groups`, { recursive: true }) as string[];
  const names = folders.map((path) => basename(path)).filter((name) => /^(job|zygote)-/.test(name));
  return [...new Set(names)].sort();
}
