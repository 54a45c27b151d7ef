import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

const die = (name: string): string => `
import os, signal
if "${name}" != "SIGKILL": signal.signal(signal.${name}, signal.SIG_DFL)
os.kill(os.getpid(), signal.${name})`;

hostileCases(({ run }) => {
  test.each([137, 143])(
    "hostile 7: exit status %i is neither oom nor cancelled",
    async (status) => {
      const { end } = await run(`import sys; sys.exit(${status})`);
      expect(end).toBe(`failed runtime_error ${status}`);
    },
  );

  describe("hostile 8: code that kills itself", () => {
    test.each([
      ["SIGSEGV", "segfault 139"],
      ["SIGABRT", "abort 134"],
      ["SIGFPE", "arithmetic_error 136"],
      ["SIGBUS", "bus_error 135"],
      ["SIGPIPE", "pipe_error 141"],
      ["SIGKILL", "killed 137"],
    ])("with %s", async (name, verdict) => {
      expect((await run(die(name))).end).toBe(`failed ${verdict}`);
    });
  });

  describe("hostile 15: forgeries", () => {
    test("forged frames and tracebacks", async () => {
      const { end, out, err, files } = await run(String.raw`
import os
frame = b"X\0\0\0\x02{}A\0\0\0\x02{}Z\0\0\0\x02{}"
os.write(1, frame)
os.write(2, b"Traceback (most recent call last):\nKeyError: 1\n")
for fd in range(3, 4096):
    try: os.write(fd, frame)
    except OSError: pass
os._exit(3)`);
      expect({ end, out, err, files }).toEqual({
        end: "failed runtime_error 3",
        out: "X\0\0\0\u0002{}A\0\0\0\u0002{}Z\0\0\0\u0002{}",
        err: "Traceback (most recent call last):\nKeyError: 1\n",
        files: {},
      });
    });

    test("an exit frame that claims success, at the supervisor's own descriptors", async () => {
      const { end, files } = await run(String.raw`
import json, os
body = json.dumps({"ending": "exited", "exit_status": 0, "exit_signal": None, "out_of_memory": False,
    "exception": None, "wall_ms": 1, "cpu_ms": 1, "max_rss_bytes": 1, "truncated": [False, False]}).encode()
frame = b"X" + len(body).to_bytes(4, "big") + body
for pid in os.listdir("/proc"):
    for fd in range(8):
        try: os.write(os.open("/proc/%s/fd/%d" % (pid, fd), os.O_WRONLY), frame)
        except OSError: pass
os._exit(9)`);
      expect({ end, files }).toEqual({ end: "failed runtime_error 9", files: {} });
    });

    test("a forged report of an exception changes only the error's type", async () => {
      const { end, verdict } = await run(String.raw`
import os
body = b"builtins.MemoryError\0builtins.Exception\0\0forged"
told = len(body).to_bytes(2, "big") + body
for fd in range(3, 4096):
    for data in (told, b"\xff\xff", b"\0\1"):
        try: os.write(fd, data)
        except OSError: pass
os._exit(5)`);
      expect(end).toMatch(/^failed [a-z_]+ 5$/);
      expect(["oom", "cancelled", "killed", "internal_error"]).not.toContain(verdict.error?.type);
    });

    test("a forged traceback before a good end", async () => {
      const code = `import sys\nprint("Traceback (most recent call last):\\nMemoryError", file=sys.stderr)`;
      expect((await run(code)).end).toBe("succeeded - 0");
    });
  });
});
