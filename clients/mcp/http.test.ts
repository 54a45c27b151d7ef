import { expect, test } from "vitest";
import { serveMcp, sessionHeader } from "./http.ts";

test("a request with more messages than a batch may have cancels nothing", async () => {
  const asked: string[] = [];
  const cancelled = (requestId: number) => ({
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId },
  });
  const body = JSON.stringify(Array.from({ length: 101 }, (_, n) => cancelled(n)));
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    [sessionHeader]: crypto.randomUUID(),
  };
  const request = new Request("http://localhost/mcp", { method: "POST", headers, body });
  const answer = await serveMcp(
    { request, body, isStopping: () => false },
    {
      api: async (path) => {
        asked.push(path);
        return new Response(null, { status: 503 });
      },
      version: "0",
      keep: () => {},
    },
  );
  expect([answer.status, asked]).toEqual([400, []]);
});
