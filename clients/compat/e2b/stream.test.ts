import { expect, test } from "vitest";
import { execute } from "./execute.ts";

test("events wait in the service until the client takes them", async () => {
  let sent = 0;
  const job_id = "01a2032d-4aea-73b9-a34b-c8387a23e858";
  const data = JSON.stringify({ job_id, attempt: 1, at: "2026-11-25T00:00:00.000Z", text: "x" });
  const event = new TextEncoder().encode(`id: 1\nevent: stdout\ndata: ${data}\n\n`);
  const events = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (++sent > 1000) controller.close();
        else controller.enqueue(event);
      },
    },
    { highWaterMark: 0 },
  );
  const call = {
    method: "POST",
    path: "/execute",
    query: new URLSearchParams(),
    headers: new Headers(),
    key: undefined,
    networkOf: () => "none" as const,
    bytes: () => Promise.reject(new Error("not asked for")),
    form: () => Promise.reject(new Error("not asked for")),
    text: () => Promise.resolve(JSON.stringify({ code: "1" })),
    api: () => Promise.resolve(new Response(events)),
    signal: new AbortController().signal,
    onRunning: () => {},
    isStopping: () => false,
  };
  const service = {
    tokens: { seal: () => Promise.resolve(""), open: () => Promise.resolve(undefined) },
    maxTimeoutS: 10,
  };
  const answer = await execute(call, service, "session");
  const reader = answer.body!.getReader();
  await reader.read();
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => void setTimeout(resolve));
  expect(sent).toBeLessThan(5);
  const lines = [""];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    lines.push(new TextDecoder().decode(value));
  }
  // Without the end of the call, as if the key had been revoked: clients must not take it for a success.
  const cut = { type: "error", name: "ConnectionError" };
  expect(JSON.parse(lines.pop()!)).toMatchObject(cut);
  expect(lines).toHaveLength(1000);
});
