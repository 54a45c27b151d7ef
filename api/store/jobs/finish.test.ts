import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { concatBytes } from "../../../shared/bytes.ts";
import { writeJson } from "../../../shared/json.ts";
import { toRecord } from "../../jobs/record.ts";
import { result } from "../../testing/store-result.ts";
import { newExecution, offers, openIn } from "../../testing/temp-store.ts";
import { store, useOneStore } from "../../testing/use-store.ts";
import { database } from "../database.ts";
import { readResultPart, readSmallOutput, resultLengths } from "../output/result-parts.ts";
import { finishExecution, type Result } from "./finish.ts";
import { claimNext } from "./claim.ts";
import { withPayload } from "./read.ts";
import { type NewExecution, submitExecution } from "./submit.ts";

useOneStore();

async function finishedWith(part: Partial<Result>, given: Partial<NewExecution> = {}) {
  await submitExecution(store.db, newExecution(given), 1000);
  const terms = { agentId: "a", expiresAt: 10, now: 1 };
  const [leased] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  const ended = await finishExecution(store.db, leased?.leaseId ?? "", { ...result, ...part }, 2);
  if (ended.kind !== "changed") throw new Error(`not finished: ${ended.kind}`);
  return withPayload(store.db, ended.execution);
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("streams come back byte for byte", () => {
  test.each([
    ["nothing", new Uint8Array()],
    ["NUL in the middle and at the end", utf8("a\0b\0")],
    ["bytes that are not UTF-8", new Uint8Array([0xff, 0xfe, 0x80, 0xc3, 0x28, 0xed, 0xa0, 0x80])],
    ["a byte order mark", utf8("\u{feff}x")],
    ["ANSI sequences", utf8("\u001b[31mred\u001b[0m")],
    ["every byte", Uint8Array.from({ length: 256 }, (_, i) => i)],
    ["a mebibyte", new Uint8Array(1024 * 1024).fill(0x80)],
  ])("%s", async (_what, bytes) => {
    const { payload } = await finishedWith({ stdout: bytes, stderr: concatBytes([bytes, bytes]) });
    expect(payload.stdout).toEqual(bytes);
    expect(payload.stderr).toEqual(concatBytes([bytes, bytes]));
  });
});

test("a record shows its streams as text, with U+FFFD for invalid UTF-8", async () => {
  const record = toRecord(
    await finishedWith({ stdout: utf8("\u{feff}a\0b"), stderr: new Uint8Array([0x61, 0xff]) }),
    undefined,
  );
  expect(record).toMatchObject({ stdout: "\u{feff}a\0b", stderr: "a\u{fffd}" });
});

test("everything in a result is stored", async () => {
  const full = await finishedWith({ output: utf8('{"pi":3.10,"big":12345678901234567890}') });
  const record = toRecord(full, "full");
  expect(record).toMatchObject({
    status: "succeeded",
    exit_code: 0,
    error: null,
    duration_ms: 1,
    timing: result.timing,
    resource_usage: result.resource_usage,
    job_ref: result.job_ref,
    container_runtime: "runsc",
    stdout_truncated: false,
    stderr_truncated: true,
  });
  expect(writeJson(record.output)).toBe('{"pi":3.10,"big":12345678901234567890}');
});

/** Bytes that this process has read so far, from its caches or the disk. */
const bytesRead = (): number =>
  Number(/^rchar: (\d+)/.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);

test("pieces of a result are read without what the job was given, however large that is", async () => {
  const mib = 1024 * 1024;
  const given = { input: new Uint8Array(16 * mib), code: new Uint8Array(16 * mib) };
  const stdout = utf8("out");
  const { execution } = await finishedWith({ stdout, stderr: stdout, output: stdout }, given);
  // A connection of its own, which has no page in its cache.
  const db = database(await openIn(store.folder));
  const before = bytesRead();
  const { id } = execution;
  for (const stream of ["stdout", "stderr"] as const)
    expect(await readResultPart(db, id, stream, { offset: 0, length: 100 })).toEqual(stdout);
  expect(await resultLengths(db, id)).toEqual({ stdout: 3, stderr: 3 });
  expect(await readSmallOutput(db, id, 100)).toEqual(stdout);
  expect(bytesRead() - before).toBeLessThan(mib);
  db.client.close();
});
