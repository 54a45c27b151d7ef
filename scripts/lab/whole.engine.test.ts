import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/testing/engine.ts";
import { type HostWatch, watchHost } from "../../agent/testing/hostile.ts";
import { rawEngine } from "../../agent/testing/raw-engine.ts";
import { sendRaw, statusOf } from "../../api/testing/follower.ts";
import { residentBytes } from "../../shared/testing/memory.ts";
import { isLab } from "../../shared/testing/test-file.ts";
import { startTestService, type TestAgent, type TestService } from "../testing/test-service.ts";

/** Hostile code from a client's request to its record, over a real API, agent and engine. */
describe.each(isLab ? ["runc", "runsc"] : ["runc"])("under %s", (runtime) => {
  const key = `key-${randomUUID()}`;
  let service: TestService;
  let agent: TestAgent;
  let watch: HostWatch;

  beforeAll(async () => {
    service = await startTestService({ key });
    agent = await service.startAgent("agent", {
      AIRLOCK_CONTAINER_RUNTIME: runtime,
      // After each case the host has no container of the agent's.
      AIRLOCK_CONTAINER_BACKEND: "engine",
    });
    await harmless();
    watch = await watchHost(agent.name, agent.process.pid);
  });
  // The next case's job shows that jobs still run after this one.
  afterEach(() => watch.holds());
  afterAll(async () => {
    try {
      await harmless();
      await watch.holds();
    } finally {
      watch?.close();
      await service?.[Symbol.asyncDispose]();
    }
  });

  async function harmless(): Promise<void> {
    const result = await service.execute("print('next')");
    expect(result).toMatchObject({ success: true, stdout: "next\n", stderr: "" });
  }

  /** The views of a job that a client can ask for; none may be a 500. */
  async function views(id: string) {
    const paths = [`/jobs/${id}`, `/jobs/${id}/result`, `/jobs/${id}/result?view=full`];
    paths.push(`/executions/${id}?view=full`, "/executions?view=full", "/dlq");
    const replies = await Promise.all(paths.map((path) => service.send("GET", path)));
    expect(replies.map(({ status }) => status)).toEqual(paths.map(() => 200));
    return replies[2]!.json;
  }

  /** Runs code as an asynchronous job, and gives the record that is kept of it. */
  async function recordOf(code: string, timeout = 30) {
    const id = await service.submit(code, {}, { timeout });
    const end = await service.send("GET", `/jobs/${id}/result?wait=true&timeout=${timeout + 240}`);
    expect(end.status).toBe(200);
    return { id, record: await views(id) };
  }

  // gVisor passes on a fifth of what runc does.
  const stdoutGigabytes = isLab && runtime === "runc" ? 10 : 2;

  test(`hostile 11: ${stdoutGigabytes} GB on stdout, a line of 1 GB on stderr, in flat memory`, async () => {
    const code = `
import os
block = b"x" * (1 << 20)
for fd, gigabytes in ((1, ${stdoutGigabytes}), (2, 1)):
    os.write(fd, b"head")
    for _ in range(gigabytes << 10): os.write(fd, block)
    os.write(fd, b"tail")`;
    const before = residentBytes(agent.process.pid!);
    let peak = 0;
    const running = recordOf(code, 240);
    const sampling = new AbortController();
    const samples = (async () => {
      while (!sampling.signal.aborted) {
        peak = Math.max(peak, residentBytes(agent.process.pid!));
        await sleep(50);
      }
    })();
    const { record } = await running;
    sampling.abort();
    await samples;
    expect(record).toMatchObject({ status: "succeeded", error: null });
    expect(record).toMatchObject({ stdout_truncated: true, stderr_truncated: true });
    for (const name of ["stdout", "stderr"]) {
      expect(record[name]).toMatch(/^headx+\n\[airlock: \d+ bytes left out\]\nx+tail$/);
    }
    // V8 collects buffers each time that 64 MiB more are there.
    expect(peak - before).toBeLessThan(160 << 20);
  }, 600_000);

  test("hostile 13: bytes that are not text come back as text, and no view fails", async () => {
    const bytes = [0x61, 0, 0x62, 0xff, 0xed, 0xa0, 0x80, 0x1b, 0x5b, 0x33, 0x31, 0x6d, 0xe2, 0x82];
    const code = `import os\nfor fd in (1, 2): os.write(fd, bytes(${JSON.stringify(bytes)}))\nraise SystemExit(3)`;
    const { record } = await recordOf(code);
    const text = "a\0b\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u001b[31m\u{fffd}";
    expect(record).toMatchObject({ status: "failed", stdout: text, stderr: text });
  });

  test("hostile 13: an exception whose message is not text", async () => {
    const { record } = await recordOf(
      String.raw`raise ValueError("\ud800\0\x1b[31m\r\n" + "x" * 100_000)`,
    );
    expect(record).toMatchObject({ status: "failed", error: { type: "value_error" } });
  });

  test("hostile 14: sources that python3 runs also run here: a byte order mark, CR LF, a line of a megabyte", async () => {
    const code = `\u{feff}if 1:\r\n    x = "${"y".repeat(1_000_000)}"\r\n    print(len(x))\r\n`;
    expect(await service.execute(code)).toMatchObject({ success: true, stdout: "1000000\n" });
  });

  test("hostile 19: each kept name can be fetched, with one header", async () => {
    const { id, record } = await recordOf(String.raw`
names = ["cr\rlf\n", "\udcff", "\u202egnp", "back\\slash", "\x1b[31m", 'quote"', "%2e", "%2e%2e%2fx", "n" * 255, "..x", "a b;c", "größe", "?q=1#x"]
for name in names: open("/output/" + name, "w").write(ascii(name))`);
    const names = (record["artifacts"] as { name: string }[]).map(({ name }) => name);
    const kept = [
      'quote"',
      "%2e",
      "%2e%2e%2fx",
      "n".repeat(255),
      "..x",
      "a b;c",
      "größe",
      "?q=1#x",
    ];
    expect(names.sort()).toEqual(kept.sort());
    for (const name of names) {
      const reply = await service.send("GET", `/jobs/${id}/artifacts/${encodeURIComponent(name)}`);
      expect(reply.status).toBe(200);
      expect(reply.headers.get("content-disposition")).toMatch(/^attachment; [\x20-\x7e]+$/);
    }
  });

  test.each([
    // The other kinds: agent/sandbox/hostile/verdict.zygote.test.ts.
    ["a depth of 100,000", `f.write('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")`],
    ["256 MB", `os.truncate(f.name, 1 << 28)`],
    ["a FIFO", `os.unlink(f.name); os.mkfifo(f.name)`],
  ])(
    "hostile 20: a result.json that is %s is not the output and gives a clear error",
    async (_, code) => {
      const { record } = await recordOf(`import os\nwith open("result.json", "w") as f: ${code}`);
      expect(record).toMatchObject({
        status: "failed",
        output: null,
        error: {
          type: "json_error",
          message: expect.stringContaining("/output/result.json is not usable") as string,
        },
      });
    },
  );

  test("hostile 20: duplicate keys, lone surrogates and NUL in result.json are part of the output", async () => {
    const text = String.raw`{"a": 1, "a": {"b": "\ud800\u0000"}, "n": 12345678901234567890}`;
    const { id, record } = await recordOf(String.raw`open("result.json", "w").write(r'${text}')`);
    expect(record).toMatchObject({ status: "succeeded", output: { a: { b: "\ud800\0" } } });
    expect((await service.send("GET", `/jobs/${id}/result`)).text).toContain(
      "12345678901234567890",
    );
  });

  test("hostile 21: __proto__ and constructor are data on the way in and out", async () => {
    const keys = '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}';
    const code = `import json, shutil; shutil.copy("/input/data.json", "result.json"); print(sorted(json.load(open("/input/data.json"))))`;
    const body = `{"code": ${JSON.stringify(code)}, "input_data": ${keys}}`;
    const { status, text } = await service.send("POST", "/execute", body);
    expect(status).toBe(200);
    expect(text.replaceAll(" ", "")).toContain(`"output":${keys.replaceAll(" ", "")}`);
    expect(JSON.parse(text)).toMatchObject({ stdout: "['__proto__', 'constructor']\n" });
    expect((await service.send("GET", "/health")).json["polluted"]).toBeUndefined();
  });

  // What follows is the API's own work, whatever runs the code.
  if (runtime !== "runc") return;

  test("hostile 14: NUL in the source is 400", async () => {
    const reply = await service.send("POST", "/execute", { code: "print(1)\0" });
    expect(reply.status).toBe(400);
    expect(reply.json).toMatchObject({ errors: [{ path: "code" }] });
  });

  const requestHead = (path: string, ...headers: string[]): string =>
    [`GET ${path} HTTP/1.1`, "Host: x", `X-API-Key: ${key}`, "Connection: close", ...headers].join(
      "\r\n",
    ) + "\r\n\r\n";

  test("hostile 34: no name in a URL leaves the folder of its job", async () => {
    const { id } = await recordOf(`open("x", "w").write("mine")`);
    const { id: another } = await recordOf(`open("secret", "w").write("artifact of another")`);
    const names = ["../x", "%2e%2e%2fx", "..%2fx", "%00", "x%00", "/etc/passwd", "%2fetc%2fpasswd"];
    names.push("..%5cx", `..%2f${another}%2fsecret`, "%ff", ".");
    for (const name of names) {
      const answer = await sendRaw(service.url, requestHead(`/jobs/${id}/artifacts/${name}`));
      expect([name, statusOf(answer)]).toEqual([name, expect.toBeOneOf([400, 404])]);
    }
  });

  test("hostile 35: invalid correlation ids are replaced", async () => {
    const own = /\r\nx-correlation-id: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\r\n/i;
    for (const id of ["a\rb", "x".repeat(10_000), "a b", "a,b", "\u001b[31m"]) {
      const answer = await sendRaw(service.url, requestHead("/health", `X-Correlation-ID: ${id}`));
      // A CR or ESC is no HTTP at all, and refused before it is a request.
      const isReplaced = own.test(answer) || answer.startsWith("HTTP/1.1 400 ");
      expect([id, isReplaced, answer.includes(id)]).toEqual([id, true, false]);
    }
    const split = requestHead("/health", "X-Correlation-ID: a", "Set-Cookie: forged");
    expect(await sendRaw(service.url, split)).not.toContain("forged");
    const twice = requestHead("/health", "X-Correlation-ID: one", "X-Correlation-ID: two");
    expect(await sendRaw(service.url, twice)).toMatch(own);
  });

  test("hostile 35: a forged X-Forwarded-For does not become the client's address", async () => {
    const body = JSON.stringify({ code: "1 / 0" });
    const head = requestHead(
      "/execute/async",
      "X-Forwarded-For: 192.0.2.66",
      "Forwarded: for=192.0.2.66",
      "Content-Type: application/json",
      `Content-Length: ${body.length}`,
    );
    const answer = await sendRaw(service.url, head.replace("GET", "POST") + body);
    const id = /"job_id":"([^"]+)"/.exec(answer)?.[1] ?? "";
    await service.send("GET", `/jobs/${id}/result?wait=true&timeout=240`);
    const { items } = (await service.send("GET", "/dlq")).json as {
      items: Record<string, unknown>[];
    };
    expect(items.find((item) => item["job_id"] === id)).toMatchObject({ client_ip: "127.0.0.1" });
  });
});

describe("secrets", () => {
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
        USER: "user",
        LOGNAME: "user",
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
});
