import { createHash } from "node:crypto";
import { createReadStream, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { collectGarbage } from "../sandbox/testing/collect-garbage.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { runIn } from "../sandbox/testing/run-code.ts";
import { specWith } from "../sandbox/testing/report.ts";

const mebibyte = 1024 ** 2;
const soon = (): AbortSignal => AbortSignal.timeout(280_000);

test("a job of 512 MiB reads a file of 1 GiB, and the memory of its agent stays flat", async () => {
  const place = await testEngine();
  const folder = tempFolder();
  const packages = { maxBytes: 3 * 1024 * mebibyte, keepsUnused: false, memoryBytes: mebibyte };
  const forks = startForks(place, { packages });
  try {
    const path = join(folder, "large");
    writeFileSync(path, "begin");
    truncateSync(path, 1024 * mebibyte);
    const hash = createHash("sha256");
    await pipeline(createReadStream(path), hash);
    const sha256 = hash.digest("hex");
    collectGarbage();
    const before = process.memoryUsage().rss;
    const file = { name: "a/large", path, sha256, sizeBytes: 1024 * mebibyte };
    const loan = await forks.borrowFile("default", file, soon());
    const after = process.memoryUsage().rss;
    const spec = specWith({ image: place.image, memoryBytes: 512 * mebibyte });
    const files = [{ bundle: loan.name, name: file.name }];
    const sandbox = await forks.open(spec, soon(), { packages: null, files });
    expect([...sandbox.mounted!]).toEqual(["a/large"]);
    const code = `
import hashlib, os
with open("/input/a/large", "rb") as file:
    print(hashlib.file_digest(file, "sha256").hexdigest(), os.path.getsize("/input/a/large"))`;
    const report = await runIn(sandbox, code, { job: { timeoutMs: 200_000 } });
    expect(Buffer.from(report.stdout).toString()).toBe(`${sha256} ${1024 * mebibyte}\n`);
    expect((after - before) / mebibyte).toBeLessThan(200);
    await sandbox.close();
    loan.giveBack();
  } finally {
    await forks.close();
  }
});
