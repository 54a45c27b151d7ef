import { describe, expect, test } from "vitest";
import { needsThroughout } from "../../scripts/testing/needs.ts";
import { openOnHost, runOnHost } from "./testing/host-run.ts";

// A supervisor on this machine has its own namespaces.
needsThroughout("root", "ip");

describe("uncaught exceptions", () => {
  test("are reported with their classes and message", async () => {
    const { exception } = await runOnHost(`class Mine(KeyError): pass\nraise Mine("missing", 1)`);
    expect(exception).toEqual({
      mro: [
        "__main__.Mine",
        ...["KeyError", "LookupError", "Exception", "BaseException", "object"].map(
          (name) => `builtins.${name}`,
        ),
      ],
      message: "('missing', 1)",
    });
  });

  test.each([
    ["a handled exception", `try: 1 / 0\nexcept ZeroDivisionError: pass`],
    ["sys.exit", `import sys; sys.exit(1)`],
    [
      "an exception in a thread",
      `import threading; t = threading.Thread(target=lambda: 1 / 0); t.start()`,
    ],
    ["an exception in a child", `import os\nif os.fork() == 0: 1 / 0\nos.wait()`],
    [
      "a printed exception",
      `import traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()`,
    ],
  ])("%s is not reported", async (_what, code) => {
    expect((await runOnHost(code)).exception).toBeNull();
  });

  test("are reported with their classes, whatever the code does to Python", async () => {
    const { exception, exitStatus } = await runOnHost(`
import builtins, os, sys
builtins.str = builtins.type = builtins.len = os.write = os.getpid = None
sys.excepthook = None
sys.modules.clear()
raise ValueError("x")`);
    expect({ exitStatus, first: exception?.mro[0] }).toEqual({
      exitStatus: 1,
      first: "builtins.ValueError",
    });
  });

  test("with a huge message or a deep hierarchy are cut, but keep the built-in bases", async () => {
    const { exception } = await runOnHost(`
c = ValueError
for i in range(100): c = type("C%d" % i + "x" * 500, (c,), {})
raise c("ü" * 1_000_000)`);
    expect(exception?.mro[0]).toMatch(/^__main__\.C99x+$/);
    expect(exception?.mro).toContain("builtins.ValueError");
    expect(exception?.message).toMatch(/^ü{500,1000}/);
  });

  test("whose message cannot be made are not reported", async () => {
    const report = await runOnHost(
      `class E(Exception):\n    def __str__(self): raise SystemExit(9)\nraise E`,
    );
    expect(report).toMatchObject({ exitStatus: 1, exception: null });
  });

  test("have a channel that a job can break for itself only", async () => {
    const report = await runOnHost(`
import os
fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
top = max(fds)
try:
    while True: os.write(top, b"\\xff" * 999)
except BlockingIOError: pass
raise ValueError("x")`);
    expect(report).toMatchObject({ ending: "exited", exitStatus: 1 });
  });
});

describe("what the code gets", () => {
  test("finalizers at the end, also of objects that a preloaded module refers to", async () => {
    const { out } = await runOnHost(
      `
import atexit, decimal, os, sys
from typing import Optional
class Row:
    def __init__(self, n: int): self.n = n
def best(rows) -> Optional[Row]: return max(rows, default=None)
class Last:
    def __del__(self): os.write(1, b"deleted\\n")
decimal.last = Last()
lines = open(os.dup(1), "w")
lines.write("written\\n")
atexit.register(lambda: print(sys.modules["decimal"] is decimal))`,
      { preload: ["decimal", "typing"] },
    );
    expect(out.split("\n").sort()).toEqual(["", "True", "deleted", "written"]);
  });

  test("nothing that a preloaded module printed", async () => {
    const { out } = await runOnHost(`import this; print("mine")`, { preload: ["this"] });
    expect(out).toBe("mine\n");
  });

  test("the same error from a module whose preload failed", async () => {
    const { conversation } = await openOnHost({ preload: ["no_such_module", "decimal"] });
    expect(conversation.preloadErrors).toEqual({
      no_such_module: "ModuleNotFoundError: No module named 'no_such_module'",
    });
  });

  test("the PYTHONPATH of its job type", async () => {
    const { out } = await runOnHost(
      `import os, sys; print(os.environ["PYTHONPATH"], sys.path[:3])`,
      {
        env: { PYTHONPATH: "/opt/a:/opt/b" },
      },
    );
    expect(out).toBe("/opt/a:/opt/b ['/code', '/opt/a', '/opt/b']\n");
  });
});
