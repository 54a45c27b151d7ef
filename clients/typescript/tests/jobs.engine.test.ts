import { execFile } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { service, useTestService } from "../../../scripts/testing/use-test-service.ts";
import { examplesOf } from "../../testing/examples-of.ts";
import { allOf } from "../../testing/all-of.ts";
import { type Airlock, connect, NotFoundError } from "../src/index.ts";

const key = "key-0123456789abcdef";
useTestService({ key });

let airlock: Airlock;
beforeAll(() => {
  airlock = connect({ url: service.url, key });
});

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

test("run gives the output as it happens", async () => {
  const told = { stdout: "", stderr: "" };
  const record = await airlock.run(
    "import sys\nfor n in range(3): print(n, flush=True); print('e', n, file=sys.stderr, flush=True)",
    { onStdout: (text) => (told.stdout += text), onStderr: (text) => (told.stderr += text) },
  );
  expect(told).toEqual({ stdout: "0\n1\n2\n", stderr: "e 0\ne 1\ne 2\n" });
  expect(record).toMatchObject({ status: "succeeded", ...told });
});

test("a job runs again, and new code runs on its input", async () => {
  const code = "print(open('/input/data.json').read())";
  const { execution_id: id } = await airlock.run({ code, input_data: { a: 1 } });
  const [again, other] = await Promise.all([
    airlock.rerun(id, { metadata: { test: "again" } }),
    airlock.fork(id, "import json; print(json.load(open('/input/data.json'))['a'] + 1)"),
  ]);
  expect(await airlock.wait(other.job_id)).toMatchObject({ stdout: "2\n", relationship: "fork" });
  const record = await airlock.wait(again.job_id);
  expect(JSON.parse(record.stdout)).toEqual({ a: 1 });
  expect(await airlock.get(again.job_id)).toEqual(record);
});

test("a job that failed is a dead letter until it is removed", async () => {
  const { job_id } = await airlock.submit("{}['x']");
  await airlock.wait(job_id);
  const found = await allOf(airlock.deadLetters.list({ error_type: "key_error" }));
  expect(found).toMatchObject([{ job_id }]);
  expect(await airlock.deadLetters.stats()).toMatchObject({ by_error_type: { key_error: 1 } });
  await airlock.deadLetters.delete(found[0]!.id);
  expect(await allOf(airlock.deadLetters.list({ error_type: "key_error" }))).toEqual([]);
});

test("a batch is queued in one request, and its jobs are waited for by their ids", async () => {
  const batch = ["print(1)", { code: "print(2)" }, { code: "" }];
  const { jobs, batch_id } = await airlock.batch(batch);
  const [first, second, third] = jobs.map((job) => ("code" in job ? job.code : job.job_id));
  expect(third).toBe("invalid_request");
  expect(await airlock.wait(first!)).toMatchObject({ stdout: "1\n" });
  expect(await airlock.wait(second!)).toMatchObject({ stdout: "2\n" });
  expect(await airlock.batches.get(batch_id)).toMatchObject({ finished: true, total: 2 });
});

test("a file that was uploaded can be listed, read and removed", async () => {
  const { file_id } = await airlock.files.upload("a.csv", "n\n42\n");
  expect(new TextDecoder().decode(await airlock.files.get(file_id))).toBe("n\n42\n");
  expect(await airlock.files.list()).toEqual([expect.objectContaining({ file_id })]);
  await airlock.files.delete(file_id);
  await expect(airlock.files.get(file_id)).rejects.toThrow(NotFoundError);
});

test.each([
  ["README", "clients/typescript/README.md", 7],
  ["guide to tools", "docs/guides/tools.md", 1],
])("the examples of the %s print what they say", async (_what, page, count) => {
  const { program, prints } = examplesOf(page, "ts", { url: service.url, key });
  expect(prints).toHaveLength(count);
  const file = resolve("clients/typescript/tests/.readme-example.ts");
  writeFileSync(file, program.replaceAll('"airlock-exec"', '"../src/index.ts"'));
  try {
    const { stdout } = await promisify(execFile)("node", ["--import", "tsx", file]);
    expect(stdout.replace("42\n\n", "42\n")).toBe(`${prints.join("\n")}\n`);
  } finally {
    rmSync(file);
  }
});
