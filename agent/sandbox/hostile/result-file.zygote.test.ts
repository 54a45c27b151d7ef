import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

hostileCases(({ run, canaryPath }) => {
  describe("hostile 20: result.json", () => {
    test.each([
      ["NaN", `f.write('{"a": NaN}')`, "not JSON"],
      ["a number beyond every double", `f.write('{"a": 1e400}')`, "too large for a double"],
      ["a list", `f.write("[1]")`, "an array, not an object"],
      ["a depth of 100,000", `f.write('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")`, "deep"],
      ["half", `f.write('{"a":')`, "not JSON"],
      ["not UTF-8", `f.buffer.write(b'{"a": "\\xff"}')`, "not UTF-8"],
      ["a link", `os.unlink(f.name); os.symlink("/etc/passwd", f.name)`, "not a regular file"],
      ["a FIFO", `os.unlink(f.name); os.mkfifo(f.name)`, "not a regular file"],
      ["a folder", `os.unlink(f.name); os.mkdir(f.name)`, "not a regular file"],
      ["a hard link", `os.link(f.name, "/output/x")`, "more than one hard link"],
      [
        "3.4 million empty objects",
        `f.write('{"a": [' + "{}," * 3_400_000 + "{}]}")`,
        "keys and values",
      ],
      ["100 MB", `f.write(" " * 100_000_000)`, "larger than"],
    ])("a result.json that is %s", async (_what, code, problem) => {
      const { end, report } = await run(
        `import os\nwith open("/output/result.json", "w") as f: ${code}`,
        { spec: { memoryBytes: 512 * 1024 ** 2 } },
      );
      expect(end).toBe("failed json_error 0");
      expect(report.result).toEqual({
        kind: "invalid",
        problem: expect.stringContaining(problem) as string,
      });
    });

    test("1 GB without content", async () => {
      const code = `import os\nos.truncate(os.open("/output/result.json", os.O_CREAT | os.O_WRONLY), 1 << 30)`;
      const { end } = await run(code, { spec: { memoryBytes: 1 << 30 } });
      expect(end).toBe("failed json_error 0");
    });

    test("a link to a file of the host", async () => {
      const { end, report } = await run(
        `import os\nos.symlink("${canaryPath()}", "/output/result.json")`,
      );
      expect(end).toBe("failed json_error 0");
      expect(report.artifacts).toEqual([]);
    });

    test("duplicate keys are kept as they were written", async () => {
      const text = '{"a": 1, "a": {"a": 2}}';
      const { end, report } = await run(`open("/output/result.json", "w").write('${text}')`);
      expect(end).toBe("succeeded - 0");
      expect(report.result).toEqual({ kind: "object", text });
    });
  });

  describe("hostile 21: special keys", () => {
    test("in result.json are data", async () => {
      const text = '{"__proto__": {"a": 1}, "constructor": {"prototype": null}}';
      const { end, report } = await run(`open("/output/result.json", "w").write('${text}')`);
      expect({ end, result: report.result }).toEqual({
        end: "succeeded - 0",
        result: { kind: "object", text },
      });
      expect(({} as Record<string, unknown>)["a"]).toBeUndefined();
    });

    test("in input_data are data", async () => {
      const inputJson = '{"__proto__": {"a": 1}, "constructor": 2}';
      const code = `import json; print(json.load(open("/input/data.json")))`;
      const { out } = await run(code, { job: { inputJson } });
      expect(out).toBe("{'__proto__': {'a': 1}, 'constructor': 2}\n");
    });
  });
});
