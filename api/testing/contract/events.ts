import { expect } from "vitest";
import { type JobEvent, SyncResult } from "../../../shared/wire/executions.ts";
import { Follower, textOf } from "../follower.ts";
import {
  type Api,
  apiKeys,
  body,
  expectFault,
  failure,
  maxEventStreams,
  problemOf,
  release,
  type Row,
  test,
  working,
} from "./api.ts";

const follow = (api: Api, id: string, query = "", headers: Record<string, string> = {}) =>
  Follower.open(api.url, `/jobs/${id}/events${query}`, headers);

/** A post of output, as parts in their order. */
const output = (...parts: [stream: "stdout" | "stderr", offset: number, bytes: string][]) => ({
  parts: parts.map(([stream, offset, bytes]) => ({
    stream,
    offset,
    data_base64: Buffer.from(bytes, "latin1").toString("base64"),
  })),
});
const base64 = (text: string) => Buffer.from(text).toString("base64");
const names = (events: JobEvent[]) => events.map(({ event }) => event);
const isOutput = ({ event }: JobEvent): boolean => event === "stdout" || event === "stderr";

export const eventRows: Row[] = [
  test("GET /jobs/{id}/events follows a job from the queue to its end: status, output as it comes, one end", async (api) => {
    const { job_id } = await api.submit({ metadata: { order: "1" } });
    await using client = await follow(api, job_id);
    expect([client.status, client.headers["content-type"]]).toEqual([200, "text/event-stream"]);
    expect(client.headers["x-accel-buffering"]).toBe("no");
    const queued = await client.next();
    expect(queued).toEqual({
      event: "status",
      data: {
        job_id,
        attempt: 0,
        at: expect.any(String) as string,
        status: "queued",
        position: 1,
        reason: expect.stringMatching(/^Waiting for a worker/) as string,
      },
    });
    const agent = api.agent();
    const { lease_id } = await agent.takeJob();
    const running = await client.until(({ data }) => "status" in data && data.status === "running");
    expect(running.data).toMatchObject({ job_id, attempt: 1, agent: "scripted" });
    await agent.post(lease_id, "logs", output(["stdout", 0, "one\n"], ["stderr", 0, "oh\n"]));
    expect((await client.until(isOutput)).data).toMatchObject({ attempt: 1, text: "one\n" });
    expect(await client.next()).toMatchObject({ event: "stderr", data: { text: "oh\n" } });
    await agent.post(lease_id, "logs", output(["stdout", 4, "two\n"]));
    expect(await client.next()).toMatchObject({ event: "stdout", data: { text: "two\n" } });
    const stdout_base64 = base64("one\ntwo\nthree\n");
    await agent.result(lease_id, { stdout_base64, stderr_base64: base64("oh\n") });
    expect(await client.next()).toMatchObject({ event: "stdout", data: { text: "three\n" } });
    const end = await client.next();
    const { stdout: _stdout, stderr: _stderr, ...record } = await api.record(job_id, "");
    expect(end).toMatchObject({ event: "end", data: { attempt: 1, ...record } });
    expect(await client.next()).toBeUndefined();
  }),
  test("Of an ended job, all texts joined are the record's streams, and there is exactly one end", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    const text = "aé€😀\u0000\r\n".repeat(2000);
    await agent.result(lease_id, {
      stdout_base64: base64(text),
      stderr_base64: Buffer.from([0xff, 0x41, 0xf0, 0x9f]).toString("base64"),
      stdout_truncated: true,
    });
    await using client = await follow(api, job_id);
    const events = await client.rest();
    const { stdout, stderr } = await api.record(job_id, "");
    expect([textOf(events, "stdout"), textOf(events, "stderr")]).toEqual([stdout, stderr]);
    expect(names(events).filter((name) => name === "end")).toEqual(["end"]);
    expect(events.find(({ event }) => event === "truncated")?.data).toMatchObject({
      stream: "stdout",
    });
  }),
  test("With Accept: application/x-ndjson the events are lines {id, event, data}", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.result(lease_id, { stdout_base64: base64("x") });
    await using lines = await follow(api, job_id, "", { Accept: "application/x-ndjson" });
    expect(lines.headers["content-type"]).toBe("application/x-ndjson");
    await using sse = await follow(api, job_id);
    expect(await lines.rest()).toEqual(await sse.rest());
  }),
  test("Last-Event-ID or ?after= continues behind any event, without loss or repeat; behind the end it is 204", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.post(lease_id, "logs", output(["stdout", 0, "a\xc3"], ["stderr", 0, "e"]));
    await agent.post(lease_id, "logs", output(["stdout", 2, "\xa9b"], ["stderr", 1, "f"]));
    await using live = await follow(api, job_id);
    await live.until((event) => event.event === "stderr" && event.data.text === "f");
    for (const [i, { id = "" }] of live.seen.entries()) {
      await using again = await follow(api, job_id, `?after=${id}`);
      const left = live.seen.slice(i + 1);
      while (again.seen.length < left.length) await again.next();
      expect(again.seen).toEqual(left);
    }
    await agent.result(lease_id, { stdout_base64: base64("aéb!"), stderr_base64: base64("ef") });
    const whole = await live.rest();
    expect([textOf(whole, "stdout"), textOf(whole, "stderr")]).toEqual(["aéb!", "ef"]);
    for (const [i, { id = "" }] of whole.entries()) {
      await using again = await follow(api, job_id, "", { "Last-Event-ID": id });
      if (i === whole.length - 1) {
        expect(again.status).toBe(204);
        continue;
      }
      await again.rest();
      for (const stream of ["stdout", "stderr"] as const) {
        const had = textOf(whole.slice(0, i + 1), stream);
        expect(had + textOf(again.seen, stream)).toBe(textOf(whole, stream));
      }
      expect(names(again.seen).filter((name) => name === "end")).toEqual(["end"]);
    }
  }),
  test("When an attempt is lost, its output is followed by retry, and the next attempt starts from zero", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.post(lease_id, "logs", output(["stdout", 0, "first"]));
    await using live = await follow(api, job_id);
    const first = await live.until(isOutput);
    await release(agent, lease_id);
    expect((await live.until(({ event }) => event === "retry")).data.attempt).toBe(1);
    const again = await agent.takeJob();
    await agent.post(again.lease_id, "logs", output(["stdout", 0, "sec"]));
    expect((await live.until(isOutput)).data).toMatchObject({ attempt: 2, text: "sec" });
    // A client that comes later sees the lost output too, while the job goes on.
    await using late = await follow(api, job_id);
    expect((await late.until(isOutput)).data).toMatchObject({ attempt: 1, text: "first" });
    expect((await late.until(isOutput)).data).toMatchObject({ attempt: 2, text: "sec" });
    await agent.result(again.lease_id, { stdout_base64: base64("second") });
    const whole = await live.rest();
    expect(textOf(whole, "stdout")).toBe("second");
    await using resumed = await follow(api, job_id, `?after=${first.id}`);
    expect((await resumed.next())?.event).toBe("retry");
    expect(textOf(await resumed.rest(), "stdout")).toBe("second");
  }),
  test("A job that is cancelled in the queue ends its events", async (api) => {
    const { job_id } = await api.submit();
    await using client = await follow(api, job_id);
    await client.next();
    await api.post(`/jobs/${job_id}/cancel`);
    const end = await client.until(({ event }) => event === "end");
    expect(end.data).toMatchObject({ status: "cancelled", error: { type: "cancelled" } });
  }),
  test("The end brings a small output, and the address of one above 256 KiB", async (api) => {
    const ends: unknown[] = [];
    for (const size of [10, 256 * 1024]) {
      const { agent, job_id, lease_id } = await working(api);
      const output_json = JSON.stringify({ a: "x".repeat(size) });
      await agent.result(lease_id, { output_json });
      await using client = await follow(api, job_id);
      const end = await client.until(({ event }) => event === "end");
      ends.push(end.data);
      if (size > 10) expect(end.data).toMatchObject({ output_url: `/jobs/${job_id}/result` });
    }
    expect(ends).toMatchObject([{ output: { a: "xxxxxxxxxx" } }, { output: null }]);
  }),
  test("A cursor that is none is 400 with its place", async (api) => {
    const { job_id } = await api.submit();
    expectFault(await api.get(`/jobs/${job_id}/events?after=x`), "after");
    const headers = { "Last-Event-ID": "1-q0-0-0" };
    expectFault(await api.get(`/jobs/${job_id}/events`, headers), "Last-Event-ID");
  }),
  {
    rule: "An API key with `max_event_streams` open streams gets 429 for a further one until one is closed; other keys are not affected",
    server: "with keys",
    only: { on: "node", why: "on Workers, only the platform's own limits apply" },
    async check(api) {
      const [mine, others] = apiKeys.map((key) => ({ "X-API-Key": key }));
      const { headers, text } = await api.post("/execute/async", { code: "print(1)" }, mine);
      expect(headers.get("Location")).toBeTruthy();
      const { job_id } = JSON.parse(text) as { job_id: string };
      const path = `/jobs/${job_id}/events`;
      const open = await Promise.all(
        Array.from({ length: maxEventStreams }, () => follow(api, job_id, "", mine)),
      );
      expect(open.map(({ status }) => status)).toEqual(open.map(() => 200));
      const refused = await api.get(path, mine);
      expect([refused.status, problemOf(refused).code]).toEqual([429, "rate_limited"]);
      expect(refused.headers.get("Retry-After")).toBe("10");
      const stream = { Accept: "text/event-stream" };
      const run = { code: "print(1)" };
      expect((await api.post("/execute", run, { ...mine, ...stream })).status).toBe(429);
      await using other = await follow(api, job_id, "", others);
      expect(other.status).toBe(200);

      await open[0]![Symbol.asyncDispose]();
      for (let status = 429; status !== 200;) {
        await using again = await follow(api, job_id, "", mine);
        ({ status } = again);
      }
      await api.post(`/jobs/${job_id}/cancel`, undefined, mine);
      for (const client of [other, ...open.slice(1)]) await client.rest();
    },
  },
  test("Events of a removed record are 404", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.result(lease_id);
    await api.send("DELETE", `/executions/${job_id}`);
    expect((await api.get(`/jobs/${job_id}/events?after=1-e0-0-0`)).status).toBe(404);
  }),
  test("GET /jobs/{id}/logs gives the raw bytes so far, from an offset, with the next one in X-Next-Offset", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    const logs = (query: string, headers = {}) => api.get(`/jobs/${job_id}/logs?${query}`, headers);
    expect((await logs("stream=stdout")).headers.get("X-Next-Offset")).toBe("0");
    await agent.post(lease_id, "logs", output(["stdout", 0, "abc"], ["stderr", 0, "E"]));
    await agent.post(lease_id, "logs", output(["stdout", 3, "def"]));
    const some = await logs("stream=stdout&offset=2");
    expect([some.status, some.text]).toEqual([200, "cdef"]);
    expect(some.headers.get("X-Next-Offset")).toBe("6");
    const none = await logs("stream=stdout&offset=6");
    expect([none.text, none.headers.get("X-Next-Offset")]).toEqual(["", "6"]);
    expect((await logs("stream=stderr")).text).toBe("E");
    expect((await logs("stream=stdout&offset=7")).status).toBe(416);
    await agent.result(lease_id, { stdout_base64: base64("abcdefghi") });
    const more = await logs("stream=stdout&offset=6");
    expect([more.text, more.headers.get("X-Next-Offset")]).toEqual(["ghi", "9"]);
    const part = await logs("offset=1", { Range: "bytes=1-2" });
    expect([part.status, part.text]).toEqual([206, "cd"]);
    expect(part.headers.get("X-Next-Offset")).toBe("4");
    expect(part.headers.get("Content-Range")).toBe("bytes 1-2/8");
    expectFault(await logs("stream=both"), "stream");
  }),
  test("GET /jobs/{id}/artifacts lists what was submitted, and what the code wrote when it has ended", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.upload(lease_id, "b/c.txt", "c");
    await agent.upload(lease_id, "a.txt", "a");
    const list = async () => body(await api.get(`/jobs/${job_id}/artifacts`));
    const { input_artifacts } = await api.record(job_id);
    expect(await list()).toEqual({ job_id, artifacts: [], input_artifacts });
    await agent.result(lease_id, { status: "failed", exit_code: 1, error: failure });
    const { artifacts } = await api.record(job_id);
    expect(artifacts?.map(({ name }) => name)).toEqual(["a.txt", "b/c.txt"]);
    expect(await list()).toEqual({ job_id, artifacts, input_artifacts });
  }),
];

const execute = (api: Api, fields: object = {}) =>
  Follower.open(api.url, "/execute", {}, { code: "print(1)", ...fields });

/** Waits until the job is no longer in a status, as a client would. */
async function left(api: Api, id: string, status: string): Promise<string> {
  for (;;) {
    const job = await api.job(id);
    if (job.status !== status) return job.status;
  }
}

export const executeEventRows: Row[] = [
  test("POST /execute with Accept: text/event-stream brings the events of its job, up to the end", async (api) => {
    const agent = await api.connected();
    await using client = await execute(api);
    expect([client.status, client.headers["content-type"]]).toEqual([200, "text/event-stream"]);
    const { lease_id, execution_id } = await agent.takeJob();
    await client.until(({ data }) => "status" in data && data.status === "running");
    const stdout_base64 = base64("1\n");
    await agent.result(lease_id, { stdout_base64 });
    const events = await client.rest();
    expect(events.at(-1)).toMatchObject({
      event: "end",
      data: { execution_id, status: "succeeded" },
    });
    expect(textOf(events, "stdout")).toBe("1\n");
  }),
  test("Hanging up on the events of POST /execute cancels the job", async (api) => {
    const agent = await api.connected();
    const client = await execute(api);
    const { lease_id, execution_id } = await agent.takeJob();
    await client.until(({ data }) => "status" in data && data.status === "running");
    await client[Symbol.asyncDispose]();
    for (let cancel: string[] = []; !cancel.includes(lease_id);) {
      ({ cancel } = await agent.poll({ wait_s: 1, free_slots: 0 }));
    }
    expect((await api.job(execution_id)).cancel_requested).toBe(true);
  }),
  test("With an idempotency key, hanging up on the events cancels nothing, and a repeat joins the job", async (api) => {
    const agent = await api.connected();
    const fields = { idempotency_key: `events-${crypto.randomUUID()}` };
    const client = await execute(api, fields);
    const { lease_id, execution_id } = await agent.takeJob();
    await client.until(({ data }) => "status" in data && data.status === "running");
    await client[Symbol.asyncDispose]();
    await using again = await execute(api, fields);
    await again.until(({ data }) => "status" in data && data.status === "running");
    expect((await api.job(execution_id)).cancel_requested).toBeUndefined();
    await agent.result(lease_id, { stdout_base64: base64("x") });
    const events = await again.rest();
    expect(events.at(-1)?.data).toMatchObject({ execution_id, status: "succeeded" });
    await using stored = await execute(api, fields);
    expect(textOf(await stored.rest(), "stdout")).toBe("x");
  }),
  test("A job whose events nobody can bring about any more ends: without an agent the job is cancelled", async (api) => {
    const agent = await api.connected();
    await using client = await execute(api);
    const { data } = await client.until(({ event }) => event === "status");
    await agent.leave();
    const end = await client.until(({ event }) => event === "end");
    expect(end.data).toMatchObject({ job_id: data.job_id, status: "cancelled" });
    expect(await left(api, data.job_id, "queued")).toBe("cancelled");
  }),
  test("An agent is told at once that a job is followed: at the claim, in a poll, and in answers to its posts", async (api) => {
    const agent = api.agent();
    const { job_id } = await api.submit();
    const early = await agent.takeJob();
    expect(early.watch).toBeUndefined();
    const post = () => agent.post(early.lease_id, "started", { job_ref: null });
    expect(JSON.parse((await post()).text)).toEqual({ watch: false });
    const polled = agent.poll({ wait_s: 20, free_slots: 0, watching: [] });
    await using client = await Follower.open(api.url, `/jobs/${job_id}/events`);
    await client.next();
    expect((await polled).watch).toEqual([early.lease_id]);
    expect((await agent.renew()).watch).toEqual([early.lease_id]);
    expect(JSON.parse((await post()).text)).toEqual({ watch: true });
    await agent.result(early.lease_id);
    const { job_id: next } = await api.submit();
    await using other = await Follower.open(api.url, `/jobs/${next}/events`);
    await other.next();
    await client.rest();
    const late = await agent.takeJob();
    expect(late.watch).toBe(true);
    await agent.result(late.lease_id);
  }),
];

const item = (number: number, text: string, main = false) => ({
  number,
  main,
  data: { "text/plain": text, "text/html": `<b>${text}</b>\u0000` },
  stdout_at: number,
  stderr_at: 0,
});
const asked = { results: true };

export const resultRows: Row[] = [
  test("`results: true` reaches the agent; a job that did not ask for results has no such field", async (api) => {
    const first = await api.submit(asked);
    const second = await api.submit({ results: false });
    const agent = api.agent();
    const jobs = [await agent.takeJob(), await agent.takeJob()];
    expect(jobs.map(({ results }) => results)).toEqual([true, undefined]);
    await agent.result(jobs[0]!.lease_id, {});
    await agent.result(jobs[1]!.lease_id, { items: [item(1, "unasked")] });
    expect(await api.record(first.job_id, "")).toMatchObject({ results: [] });
    expect(await api.record(second.job_id)).not.toHaveProperty("results");
  }),
  test("Items that an agent posts while the code runs and with its result are the record's `results`, each once", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    const items = [item(1, "one"), item(2, "two"), item(3, "three", true)];
    const first = { items: items.slice(0, 2) };
    expect((await agent.post(lease_id, "items", first)).status).toBe(200);
    expect((await agent.post(lease_id, "items", first)).status).toBe(200);
    const other = { items: [item(2, "other")] };
    expect((await agent.post(lease_id, "items", other)).status).toBe(409);
    expect(await api.record(job_id, "")).not.toHaveProperty("results");
    await agent.result(lease_id, { items: items.slice(1), results_truncated: true });
    expect((await agent.post(lease_id, "items", first)).status).toBe(200);
    expect((await agent.post(lease_id, "items", { items: [item(9, "late")] })).status).toBe(409);
    const expected = { results: items, results_truncated: true };
    expect(await api.record(job_id, "")).toMatchObject(expected);
    const listed = body(await api.get("/executions?fields=results&limit=1"));
    expect(listed).toMatchObject({ items: [{ execution_id: job_id, results: items }] });
  }),
  test("POST /execute answers with the results", async (api) => {
    const agent = await api.connected();
    const reply = api.post("/execute", { code: "1", ...asked });
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id, { items: [item(1, "1", true)] });
    const answer = SyncResult.parse(body(await reply));
    expect(answer).toMatchObject({ success: true, results: [item(1, "1", true)] });
    expect(answer).not.toHaveProperty("results_truncated");
  }),
  test("A follower gets each item once as the event `display`, also behind a cursor, and the end without them", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    await using live = await follow(api, job_id);
    await agent.post(lease_id, "items", { items: [item(1, "one")] });
    const shown = await live.until(({ event }) => event === "display");
    expect(shown.data).toMatchObject({ job_id, attempt: 1, ...item(1, "one") });
    const items = [item(1, "one"), item(2, "two"), item(3, "three", true)];
    await agent.result(lease_id, { items: items.slice(1) });
    const events = await live.rest();
    const numbers = events.flatMap(({ event, data }) =>
      event === "display" && "number" in data ? [data.number] : [],
    );
    expect(numbers).toEqual([1, 2, 3]);
    expect(events.at(-1)).toMatchObject({ event: "end" });
    expect(events.at(-1)?.data).not.toHaveProperty("results");
    await using again = await follow(api, job_id, `?after=${shown.id}`);
    const rest = await again.rest();
    expect(rest.map(({ event }) => event)).toEqual(["display", "display", "end"]);
  }),
  test("Items of a lost try are not shown; those of a job whose agent was lost are", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    await agent.post(lease_id, "items", { items: [item(1, "first try")] });
    const message = "gone";
    const error = { type: "internal_error", message, phase: "execution" };
    await agent.post(lease_id, "release", { error });
    agent.held.delete(lease_id);
    const again = await agent.takeJob();
    await agent.post(again.lease_id, "items", { items: [item(1, "second try")] });
    await agent.post(again.lease_id, "release", { error });
    expect(await api.record(job_id, "")).toMatchObject({
      status: "failed",
      results: [item(1, "second try")],
    });
  }),
];
