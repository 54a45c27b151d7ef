import { createHash, randomBytes } from "node:crypto";
import { afterEach, expect, test } from "vitest";
import { backend } from "../testing/backend.ts";
import { hostileCases } from "../testing/hostile.ts";
import {
  closeAll,
  failure,
  openIndex,
  pipFrom,
  sdistBytes,
  wheel,
  type Wheel,
} from "../testing/package-index.ts";
import type { Settings } from "../testing/run-code.ts";
import { encodeFrame } from "./frames.ts";
import type { PackageRequest } from "./job.ts";

hostileCases(({ run: runHere, runtime }) => {
  // Before the look at what the agent holds: packages are none of it.
  afterEach(closeAll);
  const runWith = (code: string, packages: PackageRequest, more: Settings = {}) =>
    runHere(code, { ...more, spec: { packages: "memory", ...more.spec }, packages });

  test("a package and its dependencies are there for the code and for processes that it starts", async () => {
    const index = await openIndex({
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

  test("a large package arrives complete, and does not count as the code's memory or time", async () => {
    const big = randomBytes(15_000_000).toString("base64");
    const index = await openIndex({
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

  test("hostile 33: the network is gone before the code runs, and packages are read-only", async () => {
    const index = await openIndex({ wheels: [wheel("airlock_probe")] });
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
print(os.listdir("/sys/class/net"))
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
)} <= {"EACCES", "EPERM", "EROFS"})
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

  test("hostile 32: a .pth runs with the rights of the code, never with root's", async () => {
    const pth = `import os; open("/tmp/pth-%d" % os.getuid(), "a").write("x")\n`;
    const index = await openIndex({
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

  test("hostile 32: a command whose name leads outside its folder is not left there for the code", async () => {
    const scripts = "[console_scripts]\n/code/json.py = a:b\n/output/result.json = a:b\n";
    const files = { "airlock_probe-1.0.dist-info/entry_points.txt": scripts };
    const index = await openIndex({ wheels: [wheel("airlock_probe", "", { files })] });
    const order = { requirements: ["airlock-probe"], from: await pipFrom(index) };
    const said = await failure(runWith("import json", order));
    expect(said).toContain("outside /packages: /code/json.py, /output/result.json");
  });

  test("hostile 32: a package without a wheel is not built, even if a wheel names it by its address", async () => {
    const sdists: Record<string, Buffer> = {};
    const wheels: Wheel[] = [];
    const index = await openIndex({ sdists, wheels });
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

  // Packages of forks are on disk: agent/packages/cache.engine.test.ts.
  if (backend === "zygote") return;

  test("a stored installation serves the next job without an index, byte for byte", async () => {
    const big = randomBytes(1_000_000).toString("base64");
    const files = { "a/b.txt": big, empty: "", "a/tests/test_a.py": "", "a/broken.py": "(" };
    const index = await openIndex({ wheels: [wheel("airlock_probe", "n = 7\n", { files })] });
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
    expect(first.out).toContain("a/tests/test_a.py");
    expect(first.out).not.toContain("a/tests/__pycache__");
    expect(index.requests.length).toBe(asked);
  });

  test("too little memory is reported as such", async () => {
    const big = randomBytes(20_000_000).toString("base64");
    const index = await openIndex({
      wheels: [wheel("airlock_big", "", { files: { "big.txt": big } })],
    });
    const packages = { requirements: ["airlock-big"], from: await pipFrom(index) };
    const small = { spec: { memoryBytes: 64 * 1024 ** 2 } };
    expect(await failure(runWith("", packages, small))).toMatch(
      /^InstallError: .*copied into the job's memory: raise memory_limit of its job type, or build/s,
    );
  });

  test("stored packages that do not fit do not count as a failure of the engine", async () => {
    async function* pieces() {
      const head = { name: "lib/big", executable: false, mtime: 0 };
      yield encodeFrame("A", Buffer.from(JSON.stringify(head)));
      for (let i = 0; i < 1600; i++) yield encodeFrame("D", Buffer.alloc(64 * 1024));
    }
    const packages = { requirements: ["airlock-big"], from: { kept: pieces } };
    const small = { spec: { memoryBytes: 96 * 1024 ** 2 } };
    expect(await failure(runWith("", packages, small))).toMatch(
      /^InstallError: .*copied into the job's memory: raise memory_limit/s,
    );
  });
});
