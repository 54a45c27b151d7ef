import { execFile } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestService, type TestService } from "../../../scripts/testing/test-service.ts";
import { examplesOf } from "../../testing/examples-of.ts";
import { type Airlock, connect, NotFoundError } from "../src/index.ts";

const key = "key-0123456789abcdef";
let service: TestService;
let airlock: Airlock;
beforeAll(async () => {
  service = await startTestService({ key });
  await service.startAgent();
  airlock = connect({ url: service.url, key });
});
afterAll(() => service[Symbol.asyncDispose]());

test("run answers with the full record of what the code did, and its files can be read", async () => {
  const record = await airlock.run({
    code: "import json; d = json.load(open('/input/data.json')); print(d['n'] * 7); open('/output/ä b.txt', 'w').write('file')",
    input_data: { n: 6 },
  });
  expect(record).toMatchObject({ status: "succeeded", stdout: "42\n", exit_code: 0 });
  const [file] = await airlock.artifacts.list(record.execution_id);
  expect(file).toMatchObject({ name: "ä b.txt", size_bytes: 4 });
  const bytes = await airlock.artifacts.get(record.execution_id, "ä b.txt");
  expect(new TextDecoder().decode(bytes)).toBe("file");
  const answer = await airlock.artifacts.open(record.execution_id, "ä b.txt");
  expect(await answer.text()).toBe("file");
});

test("code that fails is a record, not an error", async () => {
  const record = await airlock.run("raise ValueError('bad')");
  expect(record).toMatchObject({ status: "failed", error: { type: "value_error" } });
});

test("if the signal of a run aborts, the job is cancelled", async () => {
  const leaving = new AbortController();
  const running = airlock.run(
    { code: "import time; time.sleep(600)", metadata: { test: "abort" }, startup_timeout: 600 },
    { signal: leaving.signal },
  );
  running.catch(() => {});
  let id: string | undefined;
  while (id === undefined) {
    const page = await airlock.api.listExecutions({
      metadata: ["test:abort"],
      status: ["running"],
    });
    id = page.items[0]?.execution_id;
  }
  leaving.abort(new Error("gone"));
  await expect(running).rejects.toThrow("gone");
  expect(await airlock.wait(id)).toMatchObject({ status: "cancelled" });
});

test("a batch is queued in one request, and its jobs are waited for by their ids", async () => {
  const { jobs } = await airlock.batch(["print(1)", { code: "print(2)" }, { code: "" }]);
  const [first, second, third] = jobs.map((job) => ("code" in job ? job.code : job.job_id));
  expect(third).toBe("invalid_request");
  expect(await airlock.wait(first!)).toMatchObject({ stdout: "1\n" });
  expect(await airlock.wait(second!)).toMatchObject({ stdout: "2\n" });
});

test("a file that was uploaded can be listed, read and removed", async () => {
  const { file_id } = await airlock.files.upload("a.csv", "n\n42\n");
  expect(new TextDecoder().decode(await airlock.files.get(file_id))).toBe("n\n42\n");
  expect(await airlock.files.list()).toEqual([expect.objectContaining({ file_id })]);
  await airlock.files.delete(file_id);
  await expect(airlock.files.get(file_id)).rejects.toThrow(NotFoundError);
});

test("the examples of the README print what they say", async () => {
  const { program, prints } = examplesOf("clients/typescript/README.md", "ts", {
    url: service.url,
    key,
  });
  expect(prints).toHaveLength(5);
  const file = resolve("clients/typescript/tests/.readme-example.ts");
  writeFileSync(file, program.replaceAll('"airlock-exec"', '"../src/index.ts"'));
  try {
    const { stdout } = await promisify(execFile)("node", ["--import", "tsx", file]);
    expect(stdout.replace("42\n\n", "42\n")).toBe(`${prints.join("\n")}\n`);
  } finally {
    rmSync(file);
  }
});
