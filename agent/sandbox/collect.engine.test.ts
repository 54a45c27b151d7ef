import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { needsThroughout } from "../../scripts/testing/needs.ts";
import { runOnHost } from "./testing/host-run.ts";
import type { RunReport } from "./report.ts";

needsThroughout("root", "ip");

/** The report of code that leaves things in /output, its working directory. */
async function leave(code: string, artifactBytes = 1_000_000): Promise<RunReport> {
  const report = await runOnHost(`import os\n${code}`, { caps: { artifactBytes } });
  expect(report).toMatchObject({ ending: "exited", exitStatus: 0, lostReason: null, err: "" });
  return report;
}

function names({ artifacts }: RunReport): string[] {
  return artifacts.map(({ name }) => name);
}

test("files in folders are collected in order, byte for byte", async () => {
  const report = await leave(`
os.makedirs("sub/deeper"); os.mkdir("empty")
open("sub/deeper/x.bin", "wb").write(bytes(range(256)) * 1000)
open("b", "w").close(); open("a ü", "w").write("text")`);
  expect(names(report)).toEqual(["a ü", "b", "sub/deeper/x.bin"]);
  const [, , big] = report.artifacts;
  expect(big).toMatchObject({ sizeBytes: 256_000 });
  expect(readFileSync(big!.path)).toEqual(
    Buffer.alloc(
      256_000,
      Uint8Array.from({ length: 256 }, (_, i) => i),
    ),
  );
  expect(report.skipped).toEqual([]);
});

test("the files that fit are kept when there are too many bytes", async () => {
  const report = await leave(
    `for name, size in ("a", 60), ("b", 60), ("c", 40): open(name, "w").write("x" * size)`,
    100,
  );
  expect(names(report)).toEqual(["a", "c"]);
  expect(report.skipped).toEqual([{ reason: "too_many_bytes", count: 1, names: ["b"] }]);
});

test("the first thousand are kept when there are too many files", async () => {
  const report = await leave(`for i in range(1200): open("f%05d" % i, "w").close()`);
  expect(report.artifacts).toHaveLength(1000);
  expect(names(report).at(-1)).toBe("f00999");
  expect(report.skipped).toMatchObject([{ reason: "too_many_files", count: 200 }]);
});

test("a path of more than a thousand bytes is skipped", async () => {
  const report = await leave(`
os.makedirs("/".join(["d" * 200] * 5))
os.chdir("/".join(["d" * 200] * 5))
open("x" * 19, "w").close(); open("x" * 20, "w").close()`);
  expect(names(report)).toEqual([`${"d".repeat(200)}/`.repeat(5) + "x".repeat(19)]);
  expect(report.skipped).toMatchObject([{ reason: "name_too_long", count: 1 }]);
});

test("a result.json over its cap is kept as an artifact if there is room", async () => {
  const code = `open("result.json", "w").write('{"a": "' + "x" * 11_000_000 + '"}')`;
  const problem = "it is larger than 10485760 bytes";
  const roomy = await leave(code, 20_000_000);
  expect(roomy.result).toEqual({ kind: "invalid", problem });
  expect(names(roomy)).toEqual(["result.json"]);
  const tight = await leave(code);
  expect(tight.result).toEqual({ kind: "invalid", problem });
  expect(tight.skipped).toMatchObject([{ reason: "too_many_bytes", names: ["result.json"] }]);
});

test("a result.json does not count against the artifacts", async () => {
  const report = await leave(
    `open("result.json", "w").write('{"a": "' + "x" * 1000 + '"}'); open("a", "w").write("x" * 100)`,
    100,
  );
  expect(report).toMatchObject({ result: { kind: "object" }, skipped: [] });
  expect(names(report)).toEqual(["a"]);
});
