import { expect, test } from "vitest";
import { clientOf } from "./call.ts";
import { executeCode } from "./execute-code.ts";
import { headAndTail } from "./capped-text.ts";

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

test("a job whose result cannot be read is named, so that its code is not sent again", async () => {
  const result = await executeCode.run(
    {
      airlock: clientOf(async (path) =>
        path === "/execute/async"
          ? Response.json(submitted, { status: 202 })
          : new Response("", { status: 503 }),
      ),
      signal: new AbortController().signal,
      report: undefined,
      metadata: {},
      abortCancels: () => true,
      keep: () => {},
    },
    { code: "1", wait_seconds: 45 } as never,
  );
  expect(result.isError).toBe(true);
  expect(result.content).toMatchObject([
    { type: "text", text: expect.stringContaining(submitted.job_id) as unknown },
  ]);
});
