import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/sandbox/testing/engine.ts";
import { rawEngine } from "../../agent/sandbox/testing/raw-engine.ts";
import { isLab } from "../../shared/testing/tier.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

/** Looks for words, which come spelled backwards, in all of /proc and in every file that it can read. */
const search = `
import json, os, re, stat
words = {name: word[::-1] for name, word in json.load(open("/input/data.json")).items()}
host = re.compile(rb"(?<![\\w.-])" + re.escape(words["host"]).encode() + rb"(?![\\w-])")
# Of two or three letters it is a word of other meanings: it is looked for where hosts are named.
is_common = len(words["host"]) < 4
names_hosts = ("/proc/sys/kernel/", "/etc/host", "/etc/resolv", "/etc/mailname", "/proc/self/environ", "/proc/1/environ")
del words["host"]
needles = {name: word.encode() for name, word in words.items()}
found, read = [], {"/proc": 0, "/etc": 0, "/": 0}

def look(path, top, limit):
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        data = b""
        while len(data) < limit:
            chunk = os.read(file, 1 << 20)
            if not chunk: break
            data += chunk
    except OSError:
        pass
    finally:
        os.close(file)
    read[top] += 1
    found.extend((path, name) for name, needle in needles.items() if needle in data)
    if top != "/" and host.search(data) and not (is_common and not path.startswith(names_hosts)): found.append((path, "host"))

for top in ("/proc", "/etc"):
    for folder, _, names in os.walk(top):
        for name in names: look(os.path.join(folder, name), top, 1 << 22)
for folder, folders, names in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/dev", "/etc")]
    for path in (os.path.join(folder, name) for name in names):
        if stat.S_ISREG(os.lstat(path).st_mode): look(path, "/", 1 << 26)
for folder, _, names in os.walk("/sys"):
    for name in names: look(os.path.join(folder, name), "/", 1 << 16)
print(json.dumps({"found": found, "read": read}))`;

type Way = [string, Record<string, string>];
const inLab: Way[] = [["runsc", { AIRLOCK_CONTAINER_RUNTIME: "runsc" }]];
const first: Way[] = [
  ["runc", { AIRLOCK_CONTAINER_RUNTIME: "runc", AIRLOCK_CONTAINER_BACKEND: "engine" }],
  ["forks", { AIRLOCK_CONTAINER_BACKEND: "zygote" }],
];

describe.each(isLab ? inLab : first)("under %s", (_name, settings) => {
  const key = `key-${randomUUID()}`;
  let service: TestService;
  let agentName: string;
  beforeAll(async () => {
    service = await startTestService({
      key,
      api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: { env: { MODE: "job-type" } } }) },
    });
    const vars = { ...settings, AIRLOCK_WARM_POOL_SIZE: "" };
    agentName = (await service.startAgent("agent", vars)).name;
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  test("hostile 27: /proc and the file system name neither token, key, agent, API nor host", async () => {
    const { token, url } = service;
    const words = { key, token, agentName, address: new URL(url).host, host: hostname() };
    const backwards = Object.entries(words).map(([name, word]) => [
      name,
      word.split("").toReversed().join(""),
    ]);
    const input_data = Object.fromEntries(backwards) as Record<string, string>;
    const result = await service.execute(search, { input_data, timeout: 240 });
    expect(result).toMatchObject({ success: true, stderr: "" });
    const { found, read } = JSON.parse(String(result["stdout"])) as Search;
    expect(found).toEqual([]);
    expect(Math.min(...Object.values(read))).toBeGreaterThan(20);
  });

  test("the environment is the image's, the job type's and what Airlock documents", async () => {
    const code = `
import json, os
told = [dict(os.environ), dict(e.split("=", 1) for e in open("/proc/self/environ").read().split("\\0") if e)]
print(json.dumps(told))`;
    const { stdout } = await service.execute(code);
    const { image } = await testEngine();
    const { Config } = await rawEngine.getImage(image).inspect();
    const pairs = (Config.Env ?? []).map((pair) => pair.split(/=(.*)/s));
    const ofImage = Object.fromEntries(pairs) as Record<string, string>;
    const expected = {
      ...ofImage,
      OMP_NUM_THREADS: "1",
      OPENBLAS_NUM_THREADS: "1",
      MKL_NUM_THREADS: "1",
      NUMEXPR_NUM_THREADS: "1",
      NVIDIA_VISIBLE_DEVICES: "void",
      PYTHON_CPU_COUNT: "1",
      PYTHONUNBUFFERED: "1",
      HOME: "/tmp",
      HOSTNAME: "sandbox",
      MODE: "job-type",
    };
    const [own, started] = JSON.parse(String(stdout)) as [object, object];
    expect(own).toEqual(expected);
    // What the process was started with has the path that the supervisor takes out before the code runs.
    expect({ ...started, PYTHONPATH: undefined }).toEqual({ ...expected, PYTHONPATH: undefined });
  });
});

type Search = { found: [path: string, name: string][]; read: Record<string, number> };
