import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { imageWithModules, removeImages } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { runCode } from "../sandbox/testing/run-code.ts";

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
