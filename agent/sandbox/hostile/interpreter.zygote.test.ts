import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

/** Replaces everything that a report of an exception could go through, and then fails. */
const monkeypatched = `
import atexit, builtins, io, json, os, posix, sys, traceback
def no(*_, **__): pass
for module in (json, traceback):
    for name in list(vars(module)):
        if not name.startswith("__"): setattr(module, name, no)
for name in ("open", "print", "repr", "type", "str", "len", "getattr", "isinstance", "BaseException", "Exception"): setattr(builtins, name, no)
sys.excepthook = sys.unraisablehook = no
sys.exit = os._exit = os.write = posix.write = no
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None
sys.modules.clear()
{}["missing"]`;

hostileCases(({ run }) => {
  describe("hostile 30: tricks on the interpreter", () => {
    test("files that an interpreter would read: none does in this job", async () => {
      const { end, out } = await run(`
import os, subprocess, sys
version = "python%d.%d" % sys.version_info[:2]
user = "/tmp/.local/lib/%s/site-packages" % version
os.makedirs(user)
bad = "open('/output/ran', 'a').write(__name__)"
for folder in (user, "/output", "/tmp"):
    for name in ("sitecustomize", "usercustomize", "json", "collector", "link", "os"): open("%s/%s.py" % (folder, name), "w").write(bad)
open(user + "/evil.pth", "w").write("import os; " + bad)
open("/tmp/.pythonrc", "w").write(bad)
print("written")
os._exit(6)`);
      expect({ end, out }).toEqual({ end: "failed runtime_error 6", out: "written\n" });
    });

    test("sitecustomize, usercustomize and PYTHONSTARTUP do what python3 does", async () => {
      const { out, err } = await run(
        `
import os, site, subprocess, sys
os.makedirs(site.getusersitepackages())
open(site.getusersitepackages() + "/usercustomize.py", "w").write("print('user')")
print(subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True).stdout)`,
        { spec: { env: { PYTHONSTARTUP: "/code/main.py", PYTHONINSPECT: "" } } },
      );
      expect({ out, err }).toEqual({ out: "user\nchild\n\n", err: "" });
    });

    test("a json.py in the working directory is not the json that is imported", async () => {
      const { end, out } = await run(`
open("json.py", "w").write("raise SystemExit('not json')")
import json, sys
print(json.dumps({}), sys.path[0])`);
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "{} /code\n" });
    });

    test("monkeypatched builtins and modules do not make a failure a success", async () => {
      const { end, verdict } = await run(monkeypatched);
      expect(end).toMatch(/^failed /);
      expect(verdict.exitCode).toBe(1);
    });

    test("an exception that lies about itself", async () => {
      const { end } = await run(String.raw`
class Meta(type):
    __mro__ = property(lambda cls: [][0]); __name__ = property(lambda cls: [][0])
    def __getattribute__(cls, name): raise SystemExit(0)
class Liar(Exception, metaclass=Meta):
    def __getattribute__(self, name): raise SystemExit(0)
    def __str__(self): raise SystemExit(0)
    def __repr__(self): return "\0" * 10_000_000
raise Liar`);
      expect(end).toMatch(/^failed [a-z_]+ 1$/);
    });

    test("a message of ten megabytes, and one that is not text", async () => {
      expect((await run(`raise ValueError("x" * 10**7)`)).end).toBe("failed value_error 1");
      expect((await run(`raise KeyError("\\ud800\\0\\x1b[31m\\r\\n")`)).end).toBe(
        "failed key_error 1",
      );
    });

    test.each([
      ["fails after a good end", "atexit.register(lambda: 1 / 0)", "succeeded - 0"],
      ["ends the process well after an error", "atexit.register(os._exit, 0); x", "succeeded - 0"],
      ["ends the process badly", "atexit.register(os._exit, 9)", "failed runtime_error 9"],
      ["never ends", "atexit.register(time.sleep, 600)", "timeout execution_timeout null"],
      ["removes all others", "atexit._clear(); {}[0]", "failed runtime_error 1"],
    ])("an atexit handler that %s", async (_what, code, end) => {
      const timeoutMs = end.startsWith("timeout") ? 1500 : 60_000;
      const result = await run(`import atexit, os, time\n${code}`, { job: { timeoutMs } });
      // The type of the error is reported by an atexit handler. If that is removed too, only the exit status is left.
      const ends = end === "failed runtime_error 1" ? [end, "failed key_error 1"] : [end];
      expect(ends).toContain(result.end);
    });

    test.each([
      ["os._exit(5)", "failed runtime_error 5"],
      ["os.kill(os.getpid(), 9)", "failed killed 137"],
      ["sys.exit(3)", "succeeded - 0"],
      ["[][0]", "succeeded - 0"],
    ])("%s in a thread", async (code, end) => {
      const result = await run(`
import os, sys, threading
thread = threading.Thread(target=lambda: ${code}); thread.start(); thread.join()`);
      expect(result.end).toBe(end);
    });

    test("another program in place of python", async () => {
      const { end, out } = await run(
        `import os; os.execv("/bin/sh", ["sh", "-c", "echo on; exit 8"])`,
      );
      expect({ end, out }).toEqual({ end: "failed runtime_error 8", out: "on\n" });
    });
  });
});
