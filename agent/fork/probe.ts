import { tmpdir } from "node:os";
import type { MotherSpec } from "./mother-profile.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { plainSpec, type SandboxSpec } from "../sandbox/spec.ts";

const MiB = 1024 * 1024;
const memoryBytes = 64 * MiB;
const pids = 32;

/** Prints what is wrong with the sandbox that it runs in; nothing if all is well. */
const code = String.raw`
import os, socket
def read(path):
    with open(path) as file:
        return file.read()
status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
def expect(what, found, wanted):
    if found != wanted:
        print("%s is %r, not %r" % (what, found, wanted))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    expect(name, int(status[name], 16), 0)
expect("NoNewPrivs", status["NoNewPrivs"].strip(), "1")
expect("Seccomp", status["Seccomp"].strip(), "2")
expect("the user", os.getresuid() + os.getresgid(), (1000,) * 6)
expect("the groups", os.getgroups(), [])
expect("PID 1's child", os.getppid(), 1)
expect("the interfaces", os.listdir("/sys/class/net"), ["lo"])
mounts = [line.split() for line in read("/proc/self/mountinfo").splitlines()]
writable = {words[4] for words in mounts if "rw" in words[5].split(",")}
expect("what is writable", sorted(writable & {"/", "/sys", "/proc/sys", "/sys/fs/cgroup"}), [])
for limit, wanted in (
    (("memory.max", "memory/memory.limit_in_bytes"), "${memoryBytes}"),
    (("pids.max", "pids/pids.max"), "${pids}"),
):
    paths = [path for path in ("/sys/fs/cgroup/" + name for name in limit) if os.path.exists(path)]
    expect(limit[0], [read(path).strip() for path in paths], [wanted])
try:
    os.open("/etc/airlock-probe", os.O_CREAT | os.O_WRONLY)
    print("the root is writable")
except OSError:
    pass
expect("localhost", socket.gethostbyname("localhost"), "127.0.0.1")
`;

/**
 * Runs a job that looks at its own sandbox.
 *
 * @throws EngineError that says what is wrong; the signal's reason.
 */
export async function probeSandbox(
  open: (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>,
  { agentId, agentName }: MotherSpec,
  image: string,
  signal: AbortSignal,
): Promise<void> {
  const sandbox = await open(
    {
      ...plainSpec,
      image,
      labels: { agentId, agentName, leaseId: null },
      memoryBytes,
      pids,
    },
    signal,
  );
  try {
    const caps = { streamBytes: 64 * 1024, artifactBytes: 0 };
    const job = { code, inputJson: "{}", timeoutMs: 30_000, caps };
    const { stdout, stderr, exitStatus } = await sandbox.run(job, { signal, spoolDir: tmpdir() });
    const said = Buffer.concat([stdout, stderr]).toString("utf8").trim();
    if (said === "" && exitStatus === 0) return;
    throw new EngineError("other", `a probe job found: ${said || `exit status ${exitStatus}`}`);
  } finally {
    await sandbox.close();
  }
}
