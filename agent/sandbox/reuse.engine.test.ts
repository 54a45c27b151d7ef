import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ensureScienceImage } from "../../scripts/setup/science-image.ts";
import { testEngine } from "./testing/engine.ts";
import { deriveImage, rawEngine, removeImages } from "./testing/raw-engine.ts";
import {
  isListed,
  openReused,
  printedByNext,
  type ReusedSandbox,
} from "./testing/reused-sandbox.ts";

const read = (name: string): string =>
  readFileSync(new URL(`testing/${name}`, import.meta.url), "utf8");
const look = read("residue-look.py");
const litter = read("residue-litter.py");

/** As for hostile code: runc in the engine tier, gVisor in the lab. */
const runtime = process.env["HOSTILE_RUNTIME"] ?? "runc";

describe(`under ${runtime}`, () => {
  const isGvisor = runtime === "runsc";
  const open = (spec = {}): Promise<ReusedSandbox> => openReused({ runtime, ...spec });

  test("a job finds nothing that the one before it left", async () => {
    await using sandbox = await open();
    const first = await sandbox.run(look);
    expect(first).toMatchObject({ end: "succeeded - 0", err: "" });
    expect(await sandbox.rearm()).toBe(true);
    const littered = await sandbox.run(litter, { inputJson: '{"traces": "of-an-earlier-job"}' });
    expect(littered).toMatchObject({ out: "littered\n", err: "" });
    expect(await sandbox.rearm()).toBe(true);
    const second = await sandbox.run(look);
    expect(second.out).toBe(first.out);
    expect(second.err).toBe("");
  });

  test("stdin and arguments are a job's own", async () => {
    await using sandbox = await open();
    const code =
      "import os, sys; print(sys.argv[1:], sys.stdin.read(), sorted(os.listdir('/input')))";
    const first = await sandbox.run(code, { stdin: "tea", args: ["a"] });
    expect(first.out).toBe("['a'] tea ['_args', '_stdin', 'data.json']\n");
    expect(await sandbox.rearm()).toBe(true);
    expect((await sandbox.run(code)).out).toBe("[]  ['data.json']\n");
    expect(await sandbox.rearm()).toBe(true);
    expect((await sandbox.run(code, { stdin: "milk" })).out).toBe(
      "[] milk ['_stdin', 'data.json']\n",
    );
  });

  test("sockets that are in transit and that no process holds are noticed", async () => {
    await using sandbox = await open();
    await sandbox.run(`
import socket
a, b = socket.socketpair()
for one in (a, b): socket.send_fds(one, [b"x"], [a.fileno(), b.fileno()])`);
    // Linux collects them some time, gVisor never does.
    const found = await printedByNext(sandbox, `print(open("/proc/net/unix").read().count("\\n"))`);
    expect(isGvisor ? ["removed"] : ["3\n", "removed"]).toContain(found);
  });

  test("each job has its own process, output, exit code, time and memory", async () => {
    await using sandbox = await open();
    // gVisor's clock counts waiting for a CPU, too.
    const burnS = isGvisor ? 3 : 0.5;
    const heavy = await sandbox.run(`
import sys, time
x = b"x" * 60_000_000
end = time.process_time() + ${burnS}
while time.process_time() < end: pass
print("first"); raise KeyError("x")`);
    expect(heavy).toMatchObject({ end: "failed key_error 1", out: "first\n" });
    expect(heavy.report.usage?.cpuTimeMs).toBeGreaterThan(900 * burnS);
    expect(heavy.report.usage?.maxRssBytes).toBeGreaterThan(60_000_000);
    expect(await sandbox.rearm()).toBe(true);
    const light = await sandbox.run(`print("second")`);
    expect(light).toMatchObject({ end: "succeeded - 0", out: "second\n", err: "" });
    expect(light.report.usage?.cpuTimeMs).toBeLessThan(500 * burnS);
    expect(light.report.usage?.maxRssBytes).toBeLessThan(40_000_000);
  });

  test("a container serves as many jobs as its job type says, and is then removed", async () => {
    await using sandbox = await open({ reuse: 3 });
    for (const left of [2, 1]) {
      await sandbox.run("");
      expect(sandbox.jobsLeft()).toBe(left);
      expect(await sandbox.rearm()).toBe(true);
    }
    await sandbox.run("");
    expect(await sandbox.rearm()).toBe(false);
    expect(await isListed(sandbox.id)).toBe(false);
  });

  test.each([
    ["ran out of time", "while True: pass", { timeoutMs: 200 }],
    ["ran out of memory", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1", {}],
  ])("a container whose job %s is not used again", async (_what, code, job) => {
    await using sandbox = await open();
    await sandbox.run(code, job);
    expect(await sandbox.rearm()).toBe(false);
  });

  test("a container with files that take too long to remove is given up", async () => {
    await using sandbox = await open({ memoryBytes: 1024 ** 3 });
    await sandbox.run(
      `import os\nos.chdir("/tmp")\nfor i in range(3000): os.mkdir("d"); os.chdir("d")\nfor i in range(100_000): os.close(os.open("n%d" % i, os.O_CREAT | os.O_WRONLY))`,
    );
    const found = await printedByNext(sandbox, `import os; print(os.listdir("/tmp"))`);
    expect(["[]\n", "removed"]).toContain(found);
  });

  test("random values differ between jobs", async () => {
    const preload = ["random", "ssl", "uuid", "tempfile", "secrets"];
    await using sandbox = await open({ preload });
    const code = `
import os, random, secrets, ssl, tempfile, uuid
for x in (random.random(), random.SystemRandom().random(), os.urandom(8), secrets.token_hex(), ssl.RAND_bytes(8),
          uuid.uuid4(), uuid.uuid1(), tempfile.mktemp(), random.Random().random()): print(x)`;
    expect(new Set(await printedByTwo(sandbox, code)).size).toBe(18);
  });

  test("random values of numpy differ between jobs", async () => {
    const image = await ensureScienceImage(rawEngine);
    const spec = { image, preload: ["numpy"], memoryBytes: 512 * 1024 ** 2 };
    await using sandbox = await open(spec);
    const code = `
import numpy as np
for x in (np.random.rand(), np.random.RandomState().rand(), np.random.default_rng().random()): print(x)`;
    expect(new Set(await printedByTwo(sandbox, code)).size).toBe(6);
  });
});

test("a container with a socket that waits after its close is given up", async () => {
  await using sandbox = await openReused();
  await sandbox.run(`
import socket
server = socket.create_server(("127.0.0.1", 5000))
client = socket.create_connection(server.getsockname())
there, _ = server.accept()
client.close(); there.recv(1); there.close()`);
  expect(await sandbox.rearm()).toBe(false);
});

test("a container with an IPv6 flow label, which outlives its socket, is given up", async () => {
  await using sandbox = await openReused();
  const { out } = await sandbox.run(`
import socket, struct
label = struct.pack("16sIBBHHHI", b"\\xfd\\x00secret", socket.htonl(256), 0, 255, 1, 60, 60, 0)
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(socket.IPPROTO_IPV6, 32, label)
print(open("/proc/net/ip6_flowlabel").read().count(b"secret".hex()))`);
  expect(out).toBe("1\n");
  expect(await sandbox.rearm()).toBe(false);
});

test("without the filter of system calls a container serves one job", async () => {
  await using sandbox = await openReused({ seccomp: false });
  await sandbox.run("");
  expect(await sandbox.rearm()).toBe(false);
});

test("with a folder of its image that outlives a job a container serves one job", async () => {
  const { image: base } = await testEngine();
  const image = await deriveImage(base, "mkdir -m 777 /data", ["VOLUME /data"]);
  try {
    await using sandbox = await openReused({ image });
    await sandbox.run("");
    expect(await sandbox.rearm()).toBe(false);
  } finally {
    await removeImages(image);
  }
});

test.each([
  ["keeps a file open", 'keep = open("/etc/passwd")'],
  ["shares memory", "import mmap; keep = mmap.mmap(-1, 4096)"],
])("with a preloaded module that %s a container serves one job", async (_what, source) => {
  const script = `d=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && mkdir -p $d && echo '${source}' > $d/lasting.py`;
  const image = await deriveImage((await testEngine()).image, script);
  try {
    await using sandbox = await openReused({ image, preload: ["lasting"] });
    expect((await sandbox.run(`import sys; print("lasting" in sys.modules)`)).out).toBe("True\n");
    expect(await sandbox.rearm()).toBe(false);
  } finally {
    await removeImages(image);
  }
});

/** The lines that two jobs of one container print. */
async function printedByTwo(sandbox: ReusedSandbox, code: string): Promise<string[]> {
  const first = await sandbox.run(code);
  const second = (await sandbox.rearm()) && (await sandbox.run(code));
  return `${first.out}${second && second.out}`.trim().split("\n");
}
