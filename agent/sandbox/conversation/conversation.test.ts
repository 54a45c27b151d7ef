import { once } from "node:events";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";
import { encodeFrame } from "../protocol/frames.ts";
import { openConversation, type Patience } from "./conversation.ts";
import {
  data,
  exit,
  exitedWell,
  fakeSupervisor,
  fileHead,
  job,
  json,
  ready,
  started,
  summary,
} from "../testing/fake-supervisor.ts";
import type { RunOptions } from "../job.ts";
import type { RunReport } from "../report.ts";

const spoolRoot = tempFolder();

const never = new AbortController().signal;

function optionsWith(changes: Partial<RunOptions> = {}): RunOptions {
  return { signal: never, spoolDir: mkdtempSync(join(spoolRoot, "run-")), ...changes };
}

test("a job that is sent ahead is sent once, before the supervisor is ready, and is the only one", async () => {
  const { link, heard, output, say } = fakeSupervisor();
  const opening = openConversation(link, never, undefined, job);
  await vi.waitFor(() => expect(heard).toEqual(["J", "C", "I", "G"]));
  say(ready, started, exit, summary);
  const conversation = await opening;
  await expect(conversation.run({ ...job }, optionsWith())).rejects.toThrow("another job was sent");
  expect(await conversation.run(job, optionsWith())).toMatchObject({
    ending: "exited",
    started: true,
  });
  expect(heard).toHaveLength(4);
  output.end();
});

/** Runs a job against a supervisor that says `frames` and then ends. */
async function runAgainst(...frames: Buffer[]): Promise<RunReport> {
  const { link, output, say } = fakeSupervisor();
  say(ready);
  const conversation = await openConversation(link, never);
  say(...frames);
  output.end();
  return conversation.run(job, optionsWith());
}

test("the job is sent, and everything that comes back is in the report", async () => {
  const { link, heard, say } = fakeSupervisor();
  say(json("R", { python_version: "3.13.5", preload_errors: { numpy: "ImportError: x" } }));
  const conversation = await openConversation(link, never);
  expect(conversation.pythonVersion).toBe("3.13.5");
  expect(conversation.preloadErrors).toEqual({ numpy: "ImportError: x" });

  const seen: string[] = [];
  say(started, encodeFrame("O", Buffer.from("out")), encodeFrame("E", Buffer.from("err")), exit);
  say(fileHead("result.json", 7, true), data('{"a"'), data(":1}"));
  say(fileHead("empty", 0), fileHead("sub/x", 5), data("hello"), summary);
  const report = await conversation.run(
    job,
    optionsWith({
      onStarted: () => seen.push("started"),
      onOutput: (stream, bytes) => seen.push(`${stream} ${Buffer.from(bytes).toString()}`),
    }),
  );

  expect(heard).toEqual(["J", "C", "I", "G"]);
  expect(seen).toEqual(["started", "stdout out", "stderr err"]);
  expect(report).toMatchObject({
    ending: "exited",
    started: true,
    exitStatus: 0,
    stdout: Buffer.from("out"),
    result: { kind: "object", text: '{"a":1}' },
    usage: { cpuTimeMs: 1, maxRssBytes: 1000, wallTimeMs: 1.5 },
    lostReason: null,
  });
  const { artifacts } = report;
  expect(artifacts.map(({ name, sizeBytes }) => [name, sizeBytes])).toEqual([
    ["empty", 0],
    ["sub/x", 5],
  ]);
  expect(artifacts.map(({ path }) => readFileSync(path, "utf8"))).toEqual(["", "hello"]);
  expect(artifacts[1]?.sha256).toBe(
    "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
  );
});

test("an invalid result.json is kept as an artifact", async () => {
  const report = await runAgainst(
    started,
    exit,
    fileHead("result.json", 3, true),
    data("[1]"),
    summary,
  );
  expect(report.result).toMatchObject({ kind: "invalid" });
  expect(report.artifacts).toMatchObject([{ name: "result.json", sizeBytes: 3 }]);
});

test("a result.json that could not be sent comes with the reason", async () => {
  const told = json("Z", { result_problem: "not_a_regular_file", skipped: [] });
  const { result } = await runAgainst(started, exit, told);
  expect(result).toEqual({ kind: "invalid", problem: "it is not a regular file" });
});

test("an interpreter that cannot start is reported in its own words", async () => {
  const { link, say } = fakeSupervisor();
  say(json("F", { message: "the interpreter ended", output: "no module named encodings" }));
  await expect(openConversation(link, never)).rejects.toMatchObject({
    name: "EngineError",
    code: "command_not_found",
    transient: false,
    message: "the interpreter ended: no module named encodings",
  });
});

test("a supervisor that ends before it is ready is reported in its own words", async () => {
  const { link, output } = fakeSupervisor();
  output.end();
  await expect(openConversation(link, never)).rejects.toMatchObject({
    name: "EngineError",
    transient: true,
    message: expect.stringContaining("Traceback: its own") as string,
  });
});

test("the wait for a supervisor can be given up", async () => {
  const { link } = fakeSupervisor();
  const giveUp = new AbortController();
  const opening = openConversation(link, giveUp.signal);
  giveUp.abort(new Error("no time"));
  await expect(opening).rejects.toThrow("no time");
});

test("a waiting supervisor that ends is noticed", async () => {
  const { link, output, say } = fakeSupervisor();
  say(ready);
  const { died } = await openConversation(link, never);
  expect(died.aborted).toBe(false);
  output.end();
  await once(died, "abort");
  expect(died.reason).toMatchObject({ message: expect.stringContaining("ended") as string });
});

test("a container that ends before its code started is an error, so that the job can be retried", async () => {
  await expect(runAgainst()).rejects.toMatchObject({ name: "EngineError", transient: true });
});

const out = encodeFrame("O", Buffer.from("partial"));

test.each([
  ["in the middle of the code", [started, out]],
  ["in the middle of a frame", [started, out, exit.subarray(0, 20)]],
])("a stream that ends %s leaves what was known", async (_where, frames) => {
  expect(await runAgainst(...frames)).toMatchObject({
    ending: "lost",
    started: true,
    exitStatus: null,
    stdout: Buffer.from("partial"),
    lostReason: expect.stringContaining("Traceback: its own") as string,
    usage: null,
  });
});

test("a stream that ends in the middle of a file keeps the files before it", async () => {
  const report = await runAgainst(
    started,
    exit,
    fileHead("a", 1),
    data("x"),
    fileHead("b", 5),
    data("hel"),
  );
  expect(report).toMatchObject({ ending: "exited", exitStatus: 0, artifacts: [{ name: "a" }] });
  expect(report.lostReason).not.toBeNull();
});

const impatient: Patience = { overtimeMs: 0, silenceMs: 20, collectMs: 60_000 };

test("an abort asks the supervisor to cancel, and its report counts", async () => {
  const { link, heard, say } = fakeSupervisor();
  say(ready);
  const conversation = await openConversation(link, never);
  const cancel = new AbortController();
  say(started);
  const running = conversation.run(
    job,
    optionsWith({ signal: cancel.signal, onStarted: () => cancel.abort() }),
  );
  link.input.on("data", () => {
    if (!heard.includes("K")) return;
    say(json("X", { ...exitedWell, ending: "cancelled", exit_status: null, exit_signal: 15 }));
    say(summary);
  });
  expect(await running).toMatchObject({ ending: "cancelled", exitSignal: "SIGTERM" });
});

test("a supervisor that ignores the cancel is given up", async () => {
  const { link, say } = fakeSupervisor();
  say(ready);
  const conversation = await openConversation(link, never, impatient);
  const cancel = new AbortController();
  say(started, out);
  const onOutput = (): void => cancel.abort();
  const report = await conversation.run(job, optionsWith({ signal: cancel.signal, onOutput }));
  expect(report).toMatchObject({ ending: "cancelled", stdout: Buffer.from("partial") });
});

test("a job that is cancelled already is never sent", async () => {
  const { link, heard, say } = fakeSupervisor();
  say(ready);
  const conversation = await openConversation(link, never);
  const report = await conversation.run(job, optionsWith({ signal: AbortSignal.abort() }));
  expect(report).toMatchObject({ ending: "cancelled", started: false });
  expect(heard).toEqual([]);
});

test("an agent without room for artifacts fails instead of losing them", async () => {
  const { link, say } = fakeSupervisor();
  say(ready);
  const conversation = await openConversation(link, never);
  say(started, exit, fileHead("x", 1), data("y"), summary);
  const spoolDir = join(spoolRoot, "no-folder");
  writeFileSync(spoolDir, "");
  await expect(conversation.run(job, optionsWith({ spoolDir }))).rejects.toThrow("EEXIST");
});

test("code and input of any size arrive in pieces", async () => {
  const { link, heard, say } = fakeSupervisor();
  say(ready);
  const conversation = await openConversation(link, never);
  say(started, exit, summary);
  await conversation.run({ ...job, code: "#".repeat(200_000), inputJson: "" }, optionsWith());
  expect(heard).toEqual(["J", "C", "C", "C", "C", "G"]);
});
