import { beforeAll, expect, test } from "vitest";
import { service, useTestService } from "../../../scripts/testing/use-test-service.ts";
import { allOf } from "../../testing/all-of.ts";
import {
  type Airlock,
  connect,
  NotFoundError,
  type OwnTool,
  SessionEndedError,
} from "../src/index.ts";

const key = "key-0123456789abcdef";
useTestService({ key });

let airlock: Airlock;
beforeAll(() => {
  airlock = connect({ url: service.url, key });
});

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

test("a session remembers, shows values, gives output as it happens, and ends with its block", async () => {
  let id: string;
  {
    await using session = await airlock.sessions.create({ metadata: { test: "remembers" } });
    ({ id } = session);
    let told = "";
    await session.run("x = 41");
    const record = await session.run("print('hello'); x + 1", {
      onStdout: (part) => (told += part),
    });
    expect(record).toMatchObject({ session_id: id, call: 2, stdout: "hello\n" });
    expect(record.results?.[0]?.data["text/plain"]).toBe("42");
    expect(told).toBe("hello\n");
    const failed = await session.run({ code: "1 / 0", timeout: 5 });
    expect(failed).toMatchObject({ status: "failed", error: { type: "division_error" } });
    expect((await session.run("x")).results?.[0]?.data["text/plain"]).toBe("41");
    expect(await session.info()).toMatchObject({ status: "ready", calls: 4 });
    const ready = await allOf(airlock.sessions.list({ status: "ready", limit: 5 }));
    expect(ready.map(({ session_id }) => session_id)).toEqual([id]);
  }
  const late: unknown = await airlock.sessions
    .attach(id)
    .run("x")
    .catch((error: unknown) => error);
  expect(late).toBeInstanceOf(SessionEndedError);
  expect(late).toMatchObject({ problem: { reason: "deleted", session_id: id } });
  expect(await airlock.sessions.get(id)).toMatchObject({ status: "ended", reason: "deleted" });
});

test("files of a session are written, read, listed and deleted", async () => {
  await using session = await airlock.sessions.create();
  await session.files.write("a b.txt", "ä");
  await session.files.write("sub/bytes", new Uint8Array([0, 255]));
  await session.run("open('made', 'w').write(open('a b.txt').read() * 2)");
  expect(text(await session.files.read("made"))).toBe("ää");
  expect(await session.files.read("sub/bytes")).toEqual(new Uint8Array([0, 255]));
  expect(await (await session.files.open("made")).text()).toBe("ää");
  await session.files.delete("a b.txt");
  const names = (await session.files.list()).map(({ path, type }) => [path, type]);
  expect(names).toEqual([
    ["made", "file"],
    ["sub", "folder"],
  ]);
  expect((await session.files.list("sub")).map(({ path }) => path)).toEqual(["sub/bytes"]);
  await expect(session.files.read("a b.txt")).rejects.toThrow(NotFoundError);
});

test("an aborted call is interrupted and keeps variables; a restart forgets them; contexts have their own", async () => {
  await using session = await airlock.sessions.create();
  expect(await session.interrupt()).toEqual({ job_id: null });
  await session.run("x = 1");
  const leaving = new AbortController();
  const running = session.run("print('on', flush=True)\nwhile True: pass", {
    signal: leaving.signal,
    onStdout: () => leaving.abort(new Error("gone")),
  });
  await expect(running).rejects.toThrow("gone");
  const { context_id: context } = await session.contexts.create();
  await session.run({ code: "x = 2", context });
  const value = async (fields = {}) =>
    (await session.run({ code: "x", ...fields })).results?.[0]?.data["text/plain"];
  expect([await value(), await value({ context })]).toEqual(["1", "2"]);
  const contexts = await session.contexts.list();
  expect(contexts.map(({ context_id }) => context_id)).toEqual(["default", context]);
  expect(await session.restart()).toMatchObject({ status: "succeeded" });
  expect(await session.run("x")).toMatchObject({ error: { type: "name_error" } });
  expect(await value({ context })).toBe("2");
  expect(await session.run({ command: ["echo", "program"] })).toMatchObject({
    stdout: "program\n",
  });
  expect(await session.update({ idle_timeout: null })).toMatchObject({ idle_timeout: null });
});

test("a call calls functions of this program; the next one has their names no more", async () => {
  await using session = await airlock.sessions.create();
  const double: OwnTool = {
    name: "double",
    parameters: { properties: { n: {} }, required: ["n"] },
    run: ({ n }: { n: number }) => 2 * n,
  };
  const record = await session.run("x = double(double(double(5)))\nx", { tools: [double] });
  expect(record.results?.[0]?.data["text/plain"]).toBe("40");
  const [only, ...others] = await allOf(airlock.list({ session_id: session.id }));
  expect([only?.execution_id, others]).toEqual([record.execution_id, []]);
  const { run: _, ...described } = double;
  expect(record.tools).toEqual([described]);
  expect(await session.run("double(1)")).toMatchObject({ error: { type: "name_error" } });
  const next = await session.run({ code: "double(x)", timeout: 5 }, { tools: [double] });
  expect(next.results?.[0]?.data["text/plain"]).toBe("80");
});
