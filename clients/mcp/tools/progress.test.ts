import { expect, test, vi } from "vitest";
import { clientOf } from "./call.ts";
import { startReporting } from "./progress.ts";

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
