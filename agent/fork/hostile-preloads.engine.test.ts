import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { source } from "../python/program.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { imageWithModules, rawEngine, removeImages, shell } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";
import type { Forks } from "./forks.ts";

/** Modules of a hostile image. Their processes show a name that begins with "hostile". */
const modules = {
  // Takes the place of the zygote's program. Each of its jobs leaves a process in the job's groups.
  usurper: String.raw`
import os, sys
program = '''
import os, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
control = socket.socket(fileno=1021)
control.send(b'{"problem": ""}')
while True:
    request, streams, _, _ = socket.recv_fds(control, 64, 2)
    if not request: signal.pause()
    if os.fork() == 0:
        os.write(streams[0], b"p")
        os.read(streams[0], 1)
        if os.fork() == 0:
            os.closerange(0, 1024)
            os.execvp("sleep", ["hostile-left", "3600"])
        os._exit(0)
    for fd in streams: os.close(fd)
'''
os.execv(sys.executable, ["python3", "-I", "-S", "-c", program, "hostile-zygote"])`,
  hider: String.raw`
import os
os.close(1021)
os.execvp("sleep", ["hostile-hider", "3600"])`,
  flooder: String.raw`
import os, socket, sys
program = '''
import socket
control = socket.socket(fileno=1021)
control.send(b'{"problem": ""}')
while True: control.send(b"x" * 60000)
'''
os.execv(sys.executable, ["python3", "-I", "-S", "-c", program, "hostile-flooder"])`,
  // Each open file keeps the keyring that its process had.
  keeper: String.raw`
import ctypes, os
libc = ctypes.CDLL(None)
call = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
told, tell = os.pipe()
if os.fork() == 0:
    for _ in range(1000):
        if libc.syscall(call, 1, None) < 0: break
        os.open("/dev/null", os.O_RDONLY)
    os.write(tell, b"x")
    os.execvp("sleep", ["hostile-keeper", "3600"])
os.read(told, 1)
os.close(told); os.close(tell)`,
  looker: String.raw`
import os
try: print(os.listdir("/input/bundles"), flush=True)
except OSError as error: print(error, flush=True)
os._exit(1)`,
};

const place = await testEngine();
const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
let image = "";
let forks: Forks;
beforeAll(async () => {
  image = await imageWithModules(place.image, modules);
  forks = startForks(place, { mother: labels });
});
afterAll(async () => {
  await forks.close();
  await removeImages(image);
});

/** Runs a job; returns the mother's container. */
async function runJob(preload: string[], env: Record<string, string> = {}): Promise<string> {
  const signal = AbortSignal.timeout(60_000);
  const sandbox = await forks.open(specWith({ image, labels, preload, env }), signal);
  try {
    const caps = { streamBytes: 1000, artifactBytes: 0 };
    const job = { code: "print('hi')", inputJson: "{}", timeoutMs: 60_000, caps };
    const report = await sandbox.run(job, { signal, spoolDir: tmpdir() });
    expect(Buffer.from(report.stdout).toString("utf8")).toBe("hi\n");
    return sandbox.containerId;
  } finally {
    await sandbox.close();
  }
}

/** Processes in the mother that show such a name. */
async function processesNamed(name: string): Promise<number> {
  const { Processes } = (await rawEngine.getContainer(await runJob([])).top()) as {
    Processes: string[][];
  };
  return Processes.filter((words) => words.join(" ").includes(name)).length;
}

const untilNone = (name: string): Promise<void> =>
  vi.waitFor(async () => expect(await processesNamed(name)).toBe(0), 20_000);

test("a hostile zygote that fails a job is replaced; it ends, and so does what it left in the job's groups", async () => {
  for (let jobs = 0; jobs < 3; jobs++)
    await expect(runJob(["usurper"])).rejects.toThrow("did not get ready");
  await untilNone("hostile-left 3600");
  await untilNone("hostile-zygote");
});

test("a zygote that closes its socket ends", async () => {
  await expect(runJob(["hider"])).rejects.toThrow("the zygote ended");
  await untilNone("hostile-hider");
});

test("a zygote that says more than that it is ready ends, and the mother's memory does not grow", async () => {
  await expect(runJob(["flooder"])).rejects.toThrow(/zygote has ended|did not get ready/);
  await untilNone("hostile-flooder");
  const { State } = await rawEngine.getContainer(await runJob([])).inspect();
  const [, kilobytes] = /VmHWM:\s*(\d+)/.exec(readFileSync(`/proc/${State.Pid}/status`, "utf8"))!;
  expect(Number(kilobytes)).toBeLessThan(100_000);
});

test("a zygote cannot use up the keys of others", async () => {
  await runJob(["keeper"]).catch(() => {});
  expect(await processesNamed("hostile-keeper")).toBe(1);
});

test("a zygote does not see which packages others use", async () => {
  await expect(runJob(["looker"])).rejects.toThrow("Permission denied");
});

test("what unpacks files imports nothing from them", async () => {
  const unpack = Buffer.from(source("unpack")).toString("base64");
  const program = `
import os, sys
sys.path[:0] = ["/tmp"]
import unpack
os.makedirs("/tmp/files/tmp")
open("/tmp/files/tmp/hostile.py", "w").write("print('imported')")
def work():
    import hostile
print(unpack.fill("/tmp/files", work))`;
  const encoded = Buffer.from(program).toString("base64");
  const said = await shell(
    place.image,
    `echo ${unpack} | base64 -d > /tmp/unpack.py; echo ${encoded} | base64 -d > /tmp/program.py; python3 /tmp/program.py`,
  );
  expect(said).toBe("ModuleNotFoundError: No module named 'hostile'\n1\n");
});
