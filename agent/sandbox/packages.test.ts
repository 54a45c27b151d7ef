import { createHash, randomBytes, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { once } from "node:events";
import { type AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { createPackageProxy } from "../package-proxy.ts";
import { readRuntimeSource } from "../runtime-source.ts";
import type { Engine } from "./engine.ts";
import type { PackageOrder, PipSource } from "./packages.ts";
import { labels } from "./profile.ts";
import { testEngine } from "./testing/engine.ts";
import { type IndexOptions, type PackageIndex, startIndex } from "./testing/package-index.ts";
import { hostileCases } from "./testing/hostile.ts";
import { deriveImage, rawEngine, removeImages } from "./testing/raw-engine.ts";
import { runCode, type Settings } from "./testing/run-code.ts";
import { sdistBytes } from "./testing/sdist.ts";
import type { Wheel } from "./testing/wheel.ts";

let engine: Engine;
let image: string;
const open: { close(): unknown }[] = [];
/** What could not be reached. */
const problems: string[] = [];
beforeAll(async () => {
  ({ engine, image } = await testEngine());
});
function closeAll(): void {
  for (const one of open.splice(0)) one.close();
  problems.length = 0;
}
afterEach(closeAll);

const wheel = (name: string, source = "", more: object = {}) => ({
  name,
  version: "1.0",
  source,
  ...more,
});

async function indexOf(options: Partial<IndexOptions>): Promise<PackageIndex> {
  const index = await startIndex({ address: "127.0.0.1", wheels: [], ...options });
  open.push(index);
  return index;
}

/** A server on another port of the index's host, which nobody may reach. */
async function bystander() {
  const requests: string[] = [];
  const server = createServer(({ url }, response) => {
    requests.push(url ?? "");
    response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(server);
  return { requests, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

async function pipFrom(index: PackageIndex, more: Partial<PipSource> = {}): Promise<PipSource> {
  const config = { indexUrl: index.url, findLinks: undefined, caFile: undefined };
  const { pipEnv, reach } = await readRuntimeSource(config);
  return {
    pipEnv,
    files: {},
    serve: createPackageProxy(reach, (words) => problems.push(words)),
    keep: null,
    ...more,
  };
}

const runBare = (packages: PackageOrder) =>
  runCode({ engine, image }, "", { spec: { packages: true }, packages });

/** What pip, or whatever else failed, said. */
const failure = (run: Promise<unknown>): Promise<string> =>
  run.then(
    () => "",
    (error: Error) => `${error.name}: ${error.message}`,
  );

hostileCases(({ run: runHere, runtime }) => {
  // Before the look at what the agent holds: packages are none of it.
  afterEach(closeAll);
  const runWith = (code: string, packages: PackageOrder, more: Settings = {}) =>
    runHere(code, { ...more, spec: { packages: true, ...more.spec }, packages });

  test("a package and what it needs are there for the code and for what it starts", async () => {
    const index = await indexOf({
      wheels: [
        wheel("airlock_probe", "from airlock_base import n\n", { requires: ["airlock-base>=1"] }),
        wheel("airlock_base", "n = 42\n"),
      ],
    });
    const code = `
import subprocess, sys
import airlock_probe
print(airlock_probe.n, airlock_probe.__file__)
print(open("/input/_requirements.txt").read(), end="")
print(subprocess.check_output([sys.executable, "-c", "import airlock_probe as p; print(p.n)"]).decode(), end="")
at = [(path.startswith("/packages") and "p") or ("-packages" in path and "i") or "s" for path in sys.path[1:]]
print("".join(sorted(set(at), key=at.index)))
`;
    const requirements = ["airlock-probe >= 1", "airlock_base; python_version > '3'"];
    const run = await runWith(code, { requirements, from: await pipFrom(index) });
    expect(run.err).toBe("");
    const lines = run.out.replace(/python3\.\d+/, "python3.X").split("\n");
    expect(lines).toEqual([
      "42 /packages/lib/python3.X/site-packages/airlock_probe.py",
      ...requirements,
      "42",
      "spi",
      "",
    ]);
    expect(run.left).toBe(0);
  });

  test("a large package comes through whole, and does not count as the code's memory or time", async () => {
    const big = randomBytes(15_000_000).toString("base64");
    const index = await indexOf({
      wheels: [wheel("airlock_big", "", { files: { "big.txt": big } })],
    });
    const code = `
import hashlib, airlock_big, os
path = os.path.join(os.path.dirname(airlock_big.__file__), "big.txt")
digest = hashlib.sha256()
with open(path, "rb") as file:
    while chunk := file.read(65536):
        digest.update(chunk)
print(digest.hexdigest())
`;
    const from = await pipFrom(index);
    const run = await runWith(code, { requirements: ["airlock-big"], from });
    expect(run.out).toBe(`${createHash("sha256").update(big).digest("hex")}\n`);
    expect(run.report.usage?.maxRssBytes).toBeLessThan(30 * 1024 ** 2);
    // pip takes longer, before the code's time begins; gVisor's clock counts waiting for a CPU, too.
    expect(run.report.usage?.cpuTimeMs).toBeLessThan(run.report.executionMs + 100);
  });

  test("hostile 33: the network is gone before the code runs, and packages are only read", async () => {
    const index = await indexOf({ wheels: [wheel("airlock_probe")] });
    const ports = runtime === "runc" ? "range(1, 65536)" : "()"; // 47 s under gVisor
    const code = `
import errno, os, socket
def outcome(address):
    with socket.socket() as s:
        s.settimeout(2)
        code = s.connect_ex(address)
        if code == 0:
            return "itself" if s.getsockname() == s.getpeername() else "open"
        return errno.errorcode[code]
print([name for _, name in socket.if_nameindex()])
print({outcome((host, 80)) for host in ("1.1.1.1", "169.254.169.254", "172.17.0.1", "10.0.0.1")})
found = [port for port in ${ports} if outcome(("127.0.0.1", port)) == "open"]
print(found)
def listening():
    tables = [open("/proc/net/" + name) for name in ("tcp", "tcp6") if os.path.exists("/proc/net/" + name)]
    return [line.split()[1][:8] for table in tables for line in table if line.split()[3] == "0A"]
print(listening())
with socket.create_server(("127.0.0.1", 0)):
    print(listening())
print([name for name in os.environ if "proxy" in name.lower() or "pip" in name.lower()])
print(sorted(os.stat("/proc/" + pid).st_uid for pid in os.listdir("/proc") if pid.isdigit()))
print(os.listdir("/packages"), os.listdir("/code"))
def denied(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
package = __import__("airlock_probe").__file__
print({denied(act) for act in (
    lambda: open(package, "a"), lambda: os.unlink(package), lambda: os.chmod(package, 0o777),
    lambda: os.rename("/packages/lib", "/packages/bil"), lambda: open("/packages/x", "w"),
    lambda: os.mkdir(os.path.dirname(package) + "/x"), lambda: open("/input/_requirements.txt", "w"),
)} <= {"EACCES", "EPERM"})
`;
    const from = await pipFrom(index);
    const run = await runWith(code, { requirements: ["airlock-probe"], from });
    expect([run.err, run.out.split("\n")]).toEqual([
      "",
      [
        "['lo']",
        runtime === "runc" ? "{'ENETUNREACH'}" : "{'EHOSTUNREACH'}",
        "[]",
        "[]",
        "['0100007F']",
        "[]",
        "[0, 1000]",
        "['lib'] ['main.py']",
        "True",
        "",
      ],
    ]);
  });

  test("hostile 32: a .pth runs with the rights of the code, and never with root's", async () => {
    const pth = `import os; open("/tmp/pth-%d" % os.getuid(), "a").write("x")\n`;
    const index = await indexOf({
      wheels: [
        wheel("airlock_probe", "", {
          files: { "airlock.pth": pth, "sitecustomize.py": "raise SystemExit(3)\n" },
        }),
      ],
    });
    const from = await pipFrom(index);
    const code = `import os; print([n for n in os.listdir("/tmp") if n.startswith("pth")])`;
    const run = await runWith(code, { requirements: ["airlock-probe"], from });
    expect(run.out).toBe("['pth-1000']\n");
  });

  test("hostile 32: a command whose name leads elsewhere is not left there for the code", async () => {
    const scripts = "[console_scripts]\n/code/json.py = a:b\n/output/result.json = a:b\n";
    const files = { "airlock_probe-1.0.dist-info/entry_points.txt": scripts };
    const index = await indexOf({ wheels: [wheel("airlock_probe", "", { files })] });
    const order = { requirements: ["airlock-probe"], from: await pipFrom(index) };
    const said = await failure(runWith("import json", order));
    expect(said).toContain("outside /packages: /code/json.py, /output/result.json");
  });

  test("hostile 32: a package without a wheel is not built, nor is one that a wheel names by its address", async () => {
    const sdists: Record<string, Buffer> = {};
    const wheels: Wheel[] = [];
    const index = await indexOf({ sdists, wheels });
    const { origin } = new URL(index.url);
    const file = "airlock_evil-1.0.tar.gz";
    const source = `import urllib.request\nurllib.request.urlopen("${origin}/ran").read()\n`;
    sdists[file] = sdistBytes("airlock_evil", "1.0", source);
    wheels.push(
      wheel("airlock_front", "", { requires: [`airlock-evil @ ${origin}/files/${file}`] }),
    );
    const from = await pipFrom(index);
    const install = (name: string) => failure(runWith("", { requirements: [name], from }));
    expect(await install("airlock-evil")).toContain("No matching distribution found");
    expect(await install("airlock-front")).toContain("only wheels are installed");
    expect(index.requests).toContain(`/files/${file}`);
    expect(index.requests).not.toContain("/ran");
  });

  test("what was kept of an installation is the next job's without an index, byte for byte", async () => {
    const big = randomBytes(1_000_000).toString("base64");
    const index = await indexOf({
      wheels: [wheel("airlock_probe", "n = 7\n", { files: { "a/b.txt": big, empty: "" } })],
    });
    const code = `
import hashlib, os, airlock_probe
for folder, folders, names in sorted(os.walk("/packages")):
    for name in sorted(names):
        path = os.path.join(folder, name)
        found = os.stat(path)
        print(path, oct(found.st_mode), int(found.st_mtime), found.st_uid, hashlib.sha256(open(path, "rb").read()).hexdigest())
`;
    const kept: Buffer[] = [];
    const keep = async (piece: Uint8Array): Promise<void> => void kept.push(Buffer.from(piece));
    const requirements = ["airlock-probe"];
    const first = await runWith(code, {
      requirements,
      from: await pipFrom(index, { keep: async () => keep }),
    });
    const asked = index.requests.length;
    const bytes = Buffer.concat(kept);
    async function* pieces() {
      for (let at = 0; at < bytes.length; at += 77_777) yield bytes.subarray(at, at + 77_777);
    }
    const second = await runWith(code, { requirements, from: { kept: pieces } });
    expect(second.out).toBe(first.out);
    expect(first.out).toContain("__pycache__/airlock_probe");
    expect(index.requests.length).toBe(asked);
  });

  test("too little memory is said to be just that", async () => {
    const big = randomBytes(20_000_000).toString("base64");
    const index = await indexOf({
      wheels: [wheel("airlock_big", "", { files: { "big.txt": big } })],
    });
    const packages = { requirements: ["airlock-big"], from: await pipFrom(index) };
    const small = { spec: { memoryBytes: 64 * 1024 ** 2 } };
    expect(await failure(runWith("", packages, small))).toMatch(
      /^InstallError: .*(No space left on device|out of memory)/s,
    );
  });
});

describe("pip fails in its own words, and nothing else is reached", () => {
  const install = async (index: PackageIndex, ...requirements: string[]): Promise<string> =>
    failure(runBare({ requirements, from: await pipFrom(index) }));

  test("a package that is not there", async () => {
    const words = await install(await indexOf({}), "airlock-missing==3");
    expect(words).toMatch(
      /^InstallError: .*No matching distribution found for airlock-missing==3/s,
    );
  });

  test("an index that sends pip elsewhere", async () => {
    const other = await bystander();
    const index = await indexOf({
      redirects: {
        "/simple/airlock-meta/": "http://169.254.169.254/latest/meta-data/",
        "/simple/airlock-other/": `${other.url}/simple/airlock-other/`,
        "/simple/airlock-name/": `${other.url.replace("127.0.0.1", "localhost")}/`,
      },
      wheels: [
        wheel("airlock_front", "", { requires: [`x @ ${other.url}/x-1.0-py3-none-any.whl`] }),
      ],
    });
    for (const name of ["airlock-meta", "airlock-other", "airlock-name", "airlock-front"]) {
      problems.length = 0;
      expect(await install(index, name)).toMatch(/^InstallError/);
      expect(problems.join()).toMatch(/not on the internet|may not be reached/);
    }
    expect(other.requests).toEqual([]);
  });

  test("an index that is down", async () => {
    const index = await indexOf({});
    index.close();
    expect(await install(index, "airlock-probe")).toContain("No matching distribution found");
    expect(problems.join()).toContain("ECONNREFUSED");
  });

  test("an image without pip", async () => {
    const bare = await deriveImage(
      image,
      "rm -rf /usr/lib/python3*/dist-packages/pip /usr/local/lib/python3*/site-packages/pip",
    );
    try {
      const from = await pipFrom(await indexOf({}));
      const words = await failure(
        runCode({ engine, image: bare }, "", {
          spec: { packages: true },
          packages: { requirements: ["x"], from },
        }),
      );
      expect(words).toContain("the image has no pip");
    } finally {
      await removeImages(bare);
    }
  });
});

/** What a shell in the one container of an agent prints. */
async function askInside(agentName: string, script: string): Promise<string> {
  const [found] = await engine.list(labels.agentName, agentName, AbortSignal.timeout(60_000));
  const exec = await rawEngine
    .getContainer(found?.id ?? "")
    .exec({ Cmd: ["sh", "-c", script], AttachStdout: true, Tty: true });
  return (await text(await exec.start({ Tty: true }))).replaceAll("\r", "");
}

const rightsOfPip = `
for process in /proc/[0-9]*; do
  tr '\\0' ' ' <$process/cmdline | grep -q -- '[-]-only-binary' && grep -E '^(Uid|Cap|NoNew)' $process/status
done`;

test("pip is root without a capability; given up, it ends with its container", async () => {
  const index = await indexOf({ opens: new Promise(() => {}) });
  const packages = { requirements: ["airlock-probe"], from: await pipFrom(index) };
  const giveUp = new AbortController();
  const agentName = `packages-${randomUUID()}`;
  const settings = { agentName, packages, installSignal: giveUp.signal, spec: { packages: true } };
  const run = runCode({ engine, image }, "", settings);
  run.catch(() => {});
  while (index.requests.length === 0) await new Promise(setImmediate);
  const none = "0".repeat(16);
  const sets = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map((set) => `Cap${set}:\t${none}\n`);
  expect(await askInside(agentName, rightsOfPip)).toBe(
    `Uid:\t0\t0\t0\t0\n${sets.join("")}NoNewPrivs:\t1\n`,
  );
  giveUp.abort(new Error("given up"));
  await expect(run).rejects.toThrow("given up");
});
