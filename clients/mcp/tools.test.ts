import { expect, test, vi } from "vitest";
import { headAndTail } from "./results.ts";
import {
  type Call,
  cancelJob,
  clientOf,
  createSession,
  executeCode,
  startReporting,
} from "./tools.ts";

const submitted = {
  job_id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
  status: "queued",
  created_at: "2026-11-21T09:30:00.000Z",
  queue_position: 1,
  correlation_id: "c",
};

test("a text that is shortened keeps whole characters, and no more than its limit", () => {
  for (let length = 80; length < 90; length++) {
    const text = headAndTail("x😀".repeat(100), length);
    expect(text).toMatch(/^[x😀]+\n\[… \d+ or more characters are left out here …\]\n[x😀]+$/u);
    expect(text.length).toBeLessThanOrEqual(length);
  }
});

/** A call to a service that answers one path, and others with this status. */
const callOf = (path: string, answer: object, otherStatus: number): Call => ({
  airlock: clientOf(async (asked, init) =>
    asked === path && init?.method === "POST"
      ? Response.json(answer, { status: 202 })
      : new Response("", { status: otherStatus }),
  ),
  signal: new AbortController().signal,
  report: undefined,
  metadata: {},
  abortCancels: () => true,
  keep: () => {},
});

test("a job whose result cannot be read is named, so that its code is not sent again", async () => {
  const result = await executeCode.run(callOf("/execute/async", submitted, 503), {
    code: "1",
    wait_seconds: 45,
  } as never);
  expect(result.isError).toBe(true);
  expect(result.content).toMatchObject([
    { type: "text", text: expect.stringContaining(submitted.job_id) as unknown },
  ]);
});

test("a job that ends between the last wait and the look at its state has ended", async () => {
  let waits = 0;
  const record = {
    execution_id: submitted.job_id,
    status: "succeeded",
    stdout: "said\n",
    stderr: "",
    output: null,
    error: null,
    artifacts: [],
  };
  const call: Call = {
    ...callOf("", {}, 404),
    airlock: clientOf(async (path) => {
      if (path === "/execute/async") return Response.json(submitted, { status: 202 });
      if (!path.includes("/result")) return Response.json({ ...submitted, status: "succeeded" });
      waits += 1;
      if (waits > 1) return Response.json(record);
      const problem = { status: 408, code: "wait_timeout", detail: "It goes on.", title: "t" };
      return Response.json(problem, { status: 408 });
    }),
  };
  const result = await executeCode.run(call, { code: "1", wait_seconds: 0 } as never);
  expect([waits, result.structuredContent]).toMatchObject([2, { status: "succeeded" }]);
  expect(JSON.stringify(result)).not.toContain("goes on");
});

test("with a key that may not read, a session that is made and a job that is cancelled are no failures", async () => {
  const session_id = submitted.job_id;
  const made = { session_id, status: "queued", message: "No host is free." };
  const result = await createSession.run(callOf("/sessions", made, 403), {
    wait_seconds: 0,
  } as never);
  expect(result).toEqual({
    content: [{ type: "text", text: `Session ${session_id}: queued. No host is free.` }],
    structuredContent: made,
  });
  const { job_id } = submitted;
  const cancelling = callOf(`/jobs/${job_id}/cancel`, { job_id, status: "cancelled" }, 403);
  expect((await cancelJob.run(cancelling, { job_id } as never)).content).toMatchObject([
    { text: expect.stringContaining(`Job ${job_id} was cancelled, but`) as unknown },
  ]);
});

const id = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";

test("progress comes from the events of the job: each new state at once, and only the newest output", async () => {
  const asked: string[] = [];
  const reported: string[] = [];
  let send!: (event: string, data: object) => void;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      send = (event, data) => {
        const line = `${JSON.stringify({ id: "1", event, data })}\n`;
        controller.enqueue(new TextEncoder().encode(line));
      };
    },
  });
  vi.useFakeTimers();
  try {
    const stop = startReporting(
      {
        airlock: clientOf(async (path) => {
          asked.push(path);
          return new Response(body);
        }),
        signal: new AbortController().signal,
        report: async (_progress, message) => void reported.push(message),
        metadata: {},
        abortCancels: () => true,
        keep: () => {},
      },
      id,
    );
    send("status", { status: "queued", reason: "Waits for its turn." });
    await vi.advanceTimersByTimeAsync(2000);
    send("status", { status: "running" });
    send("stdout", { text: `${"a".repeat(1000)}b` });
    send("stderr", { text: "c" });
    await vi.advanceTimersByTimeAsync(2000);
    send("retry", {});
    await vi.advanceTimersByTimeAsync(2000);
    stop();
    await vi.advanceTimersByTimeAsync(10_000);
  } finally {
    vi.useRealTimers();
  }
  expect(reported).toEqual([
    `Job ${id}: Waits for its turn.\n`,
    `Job ${id}: Waits for its turn.\n`,
    `Job ${id}: running\n`,
    `Job ${id}: running\n${"a".repeat(498)}bc`,
    `Job ${id}: running\n`,
  ]);
  expect(asked).toEqual([`/jobs/${id}/events`]);
});
