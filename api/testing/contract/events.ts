import { expect } from "vitest";
import type { JobEvent } from "../../../shared/wire/client/events.ts";
import { Follower, textOf } from "../follower.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { type Row } from "./row.ts";
import { apiKeys, maxEventStreams } from "./servers.ts";
import { failure, release, working } from "./working.ts";

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
  {
    rule: "GET /jobs/{id}/events follows a job from the queue to its end: status, output as it comes, one end",
    async check(api) {
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
      const running = await client.until(
        ({ data }) => "status" in data && data.status === "running",
      );
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
    },
  },
  {
    rule: "Of an ended job, all texts joined are the record's streams, and there is exactly one end",
    async check(api) {
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
    },
  },
  {
    rule: "With Accept: application/x-ndjson the events are lines {id, event, data}",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      await agent.result(lease_id, { stdout_base64: base64("x") });
      await using lines = await follow(api, job_id, "", { Accept: "application/x-ndjson" });
      expect(lines.headers["content-type"]).toBe("application/x-ndjson");
      await using sse = await follow(api, job_id);
      expect(await lines.rest()).toEqual(await sse.rest());
    },
  },
  {
    rule: "Last-Event-ID or ?after= continues behind any event, without loss or repeat; behind the end it is 204",
    async check(api) {
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
    },
  },
  {
    rule: "When an attempt is lost, its output is followed by retry, and the next attempt starts from zero",
    async check(api) {
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
    },
  },
  {
    rule: "A job that is cancelled in the queue ends its events",
    async check(api) {
      const { job_id } = await api.submit();
      await using client = await follow(api, job_id);
      await client.next();
      await api.post(`/jobs/${job_id}/cancel`);
      const end = await client.until(({ event }) => event === "end");
      expect(end.data).toMatchObject({ status: "cancelled", error: { type: "cancelled" } });
    },
  },
  {
    rule: "The end brings a small output, and the address of one above 256 KiB",
    async check(api) {
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
    },
  },
  {
    rule: "Events of an unknown job are 404; a cursor that is none is 400 with its place",
    async check(api) {
      expect((await api.get(`/jobs/${crypto.randomUUID()}/events`)).status).toBe(404);
      const { job_id } = await api.submit();
      expectFault(await api.get(`/jobs/${job_id}/events?after=x`), "after");
      const headers = { "Last-Event-ID": "1-q0-0-0" };
      expectFault(await api.get(`/jobs/${job_id}/events`, headers), "Last-Event-ID");
    },
  },
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
  {
    rule: "Events of a removed record are 404",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      await agent.result(lease_id);
      await api.send("DELETE", `/executions/${job_id}`);
      expect((await api.get(`/jobs/${job_id}/events?after=1-e0-0-0`)).status).toBe(404);
    },
  },
  {
    rule: "GET /jobs/{id}/logs gives the raw bytes so far, from an offset, with the next one in X-Next-Offset",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      const logs = (query: string, headers = {}) =>
        api.get(`/jobs/${job_id}/logs?${query}`, headers);
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
      expect((await api.get(`/jobs/${crypto.randomUUID()}/logs`)).status).toBe(404);
    },
  },
  {
    rule: "GET /jobs/{id}/artifacts lists what was submitted, and what the code wrote when it has ended",
    async check(api) {
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
      expect((await api.get(`/jobs/${crypto.randomUUID()}/artifacts`)).status).toBe(404);
    },
  },
];
