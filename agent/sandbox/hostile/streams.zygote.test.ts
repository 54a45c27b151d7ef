import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

hostileCases(({ run }) => {
  describe("hostile 11: output without end", () => {
    // 10 GB against the memory of a real agent: scripts/hostile/whole-path.engine.test.ts.
    test("a flood of output", async () => {
      const { end, out, report } = await run(
        `import os\nos.write(1, b"head")\nfor _ in range(5000): os.write(1, b"x" * 200_000)\nos.write(1, b"tail")`,
      );
      expect(end).toBe("succeeded - 0");
      expect(out).toMatch(/^headx+\n\[airlock: 999000008 bytes left out\]\nx+tail$/);
      expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: false });
    });

    test("a flood on both streams, from many processes, until the time limit", async () => {
      const code = `
import os
for _ in range(4): os.fork()
while True: os.write(1, b"o" * 100_000); os.write(2, b"e" * 100_000)`;
      const { end, out, err, report } = await run(code, { job: { timeoutMs: 3000 } });
      expect(end).toBe("timeout execution_timeout null");
      expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: true });
      expect(out).toMatch(/^o+\n\[airlock: \d+ bytes left out\]\no+$/);
      expect(err).toMatch(/^e+\n\[airlock: \d+ bytes left out\]\ne+$/);
    });

    test("a hundred thousand one-byte writes", async () => {
      const code = `import os\nfor _ in range(100_000): os.write(1, b"x")`;
      const { end, out } = await run(code);
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "x".repeat(100_000) });
    });
  });

  test("hostile 15: code that reads its own streams gets only its own output", async () => {
    const { end, out, err } = await run(`
import glob, os, threading
mine = os.open("/dev/stdout", os.O_RDONLY)
own = [os.fstat(fd).st_ino for fd in (0, 1, 2)]
found = []
for name in glob.glob("/proc/[0-9]*/fd/*"):
    try: fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError: continue
    if os.fstat(fd).st_ino not in own and os.readlink(name).startswith("pipe:"): found.append(name)
    os.close(fd)
def take():
    while os.read(mine, 65536): pass
threading.Thread(target=take, daemon=True).start()
for _ in range(100): os.write(1, b"x" * 65536)
os.write(2, repr(found).encode())
os._exit(7)`);
    expect({ end, err }).toEqual({ end: "failed runtime_error 7", err: "[]" });
    expect(out).toMatch(/^x*(\n\[airlock: \d+ bytes left out\]\nx*)?$/);
  });

  describe("hostile 13: bytes that are not text", () => {
    test.each([
      ["invalid UTF-8", [0xff, 0xfe, 0xc0, 0x80, 0xe2, 0x28]],
      ["NUL", [0x61, 0, 0x62, 0]],
      ["ANSI", [...Buffer.from("\u001b[31m\u001b]0;title\u0007\u001b[2J\r\b")]],
      ["lone surrogates", [0xed, 0xa0, 0x80, 0xed, 0xbf, 0xbf]],
      ["half a character at the end", [0xe2, 0x82]],
    ])("%s on both streams arrives byte for byte", async (_what, bytes) => {
      const code = `import os\nfor fd in (1, 2): os.write(fd, bytes(${JSON.stringify(bytes)}))`;
      const { end, report } = await run(code);
      expect(end).toBe("succeeded - 0");
      expect([...report.stdout]).toEqual(bytes);
      expect([...report.stderr]).toEqual(bytes);
    });

    test("a surrogate that print cannot encode is the code's own error", async () => {
      expect((await run(`print("\\ud800")`)).end).toBe("failed encoding_error 1");
    });
  });
});
