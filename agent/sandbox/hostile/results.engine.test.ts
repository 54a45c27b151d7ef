import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";
import type { Settings } from "../testing/run-code.ts";

hostileCases(({ run }) => {
  describe("hostile 55: results that break their limits or their protocol", () => {
    async function runCell(code: string, settings: Settings = {}) {
      const job = { results: true, ...settings.job };
      const { report, ...rest } = await run(code, { ...settings, job });
      const texts = report.items.map(({ data }) => data["text/plain"] ?? "");
      return { ...rest, report, texts, isCut: report.itemsTruncated };
    }

    test("a million items", async () => {
      const { texts, isCut, report, end } = await runCell(
        "for n in range(1_000_000): display(n)\n'last'",
        { job: { timeoutMs: 120_000 } },
      );
      expect(end).toBe("succeeded - 0");
      expect([texts.length, texts[998], texts[999], isCut]).toEqual([1000, "998", "'last'", true]);
      expect(report.items[999]?.main).toBe(true);
    });

    test("a repr without end stops at the time limit, with what was shown before", async () => {
      const { texts, end } = await runCell(
        "class A:\n  def __repr__(self):\n    while True: pass\ndisplay(1)\nA()",
        { job: { timeoutMs: 1500 } },
      );
      expect([texts, end]).toEqual([["1"], "timeout execution_timeout null"]);
    });

    test("a repr of 100 MiB, and a picture over the limit", async () => {
      const { texts, isCut, files, end } = await runCell(`
class A:
    def __repr__(self): return "x" * (100 << 20)
class B:
    def __repr__(self): return "B"
    def _repr_png_(self): return b"p" * (1 << 20)
display(A())
B()`);
      expect(end).toBe("succeeded - 0");
      expect([texts[0]?.length, texts[1], isCut]).toEqual([64 * 1024 + 1, "B", true]);
      expect(files["_results/2.png"]).toHaveLength(1024 * 1024);
    });

    test("8 MiB in all", async () => {
      const { texts, isCut, end } = await runCell(`
class A:
    def __repr__(self): return "A"
    def _repr_html_(self): return "h" * 1_000_000
for _ in range(20): display(A())`);
      expect([texts, isCut, end]).toEqual([Array(20).fill("A"), true, "succeeded - 0"]);
    });

    const forge = (rest: string): string => `
import os
tell = max(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd) and "pipe" in os.readlink("/proc/self/fd/" + fd))
def item(text): return b"y" + len(text).to_bytes(4, "big") + text
display("first")
${rest}
display("last")`;

    test.each([
      ["of 4 GiB", `os.write(tell, b"y" + bytes([255] * 4))`, ["'first'"]],
      ["of an unknown kind", `os.write(tell, b"z" + bytes(4))`, ["'first'"]],
      ["that is not JSON", `os.write(tell, item(b"{"))`, ["'first'", "'last'"]],
      ["that is none", `os.write(tell, item(b'{"main":true,"data":[]}'))`, ["'first'", "'last'"]],
      [
        "with names that are none",
        `os.write(tell, item(b'{"main":true,"data":{"a<b":"c"}}'))`,
        ["'first'", "'last'"],
      ],
      ["of no bytes", `os.write(tell, item(b""))`, ["'first'", "'last'"]],
      ["half of one", `os.write(tell, item(b"x" * 9)[:-5])`, ["'first'"]],
      [
        "like a real one",
        `os.write(tell, item(b'{"main":false,"data":{"text/plain":"mine"}}'))`,
        ["'first'", "mine", "'last'"],
      ],
      ["closed", `os.close(tell)`, ["'first'"]],
      [
        "a flood",
        `for _ in range(3000): os.write(tell, item(b"x" * 100_000))\ntell = 1`,
        ["'first'"],
      ],
    ])("a message: %s", async (_what, code, shown) => {
      const { texts, out, end } = await runCell(forge(code));
      expect([texts, out, end]).toEqual([shown, "", "succeeded - 0"]);
    });
  });
});
