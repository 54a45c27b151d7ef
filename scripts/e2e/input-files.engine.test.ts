import { readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startTestService } from "../testing/test-service.ts";

const code = `
import sys
try:
    open("/input/tables/large.bin", "ab")
except OSError as error:
    print(type(error).__name__)
print(open("/input/tables/large.bin").read().count("x"), open("/input/small.txt").read(), sys.argv[1:], input())`;

test.each(["engine", "zygote"])(
  "jobs with container_backend %s read their files, and an agent fetches each once",
  async (backend) => {
    await using service = await startTestService();
    const vars = { AIRLOCK_CONTAINER_BACKEND: backend };
    await service.startAgent("files", vars);
    const files = [
      { name: "tables/large.bin", text: "x".repeat(300_000) },
      { name: "small.txt", base64: Buffer.from("tea").toString("base64") },
    ];
    const run = async () => {
      const job = { code, files, args: ["a"], stdin: "milk" };
      const { json } = await service.send<Record<string, unknown>>("POST", "/execute", job);
      return json;
    };
    const words = "\n300000 tea ['a'] milk\n";
    for (const result of [...(await Promise.all([run(), run()])), await run()]) {
      expect(result).toMatchObject({ success: true, stderr: "" });
      expect(result["stdout"]).toMatch(/^(PermissionError|OSError)\n/);
      expect(result["stdout"]).toContain(words);
    }
    // Kept by content: a second download would have another name.
    const spool = join(service.folder, "spool-files");
    const [own] = readdirSync(spool);
    expect(readdirSync(join(spool, own!, "input-files"))).toHaveLength(2);
  },
);
