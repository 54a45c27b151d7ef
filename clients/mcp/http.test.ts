import { expect, test } from "vitest";
import { serveMcp, sessionHeader } from "./http.ts";

const cancelled = (requestId: number) => ({
  jsonrpc: "2.0",
  method: "notifications/cancelled",
  params: { requestId },
});

/** The status of the answer, the requests to the API, and the calls that were counted. */
async function send(messages: object[], answer: () => Response) {
  const asked: string[] = [];
  let counted = 1;
  const body = JSON.stringify(messages);
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    [sessionHeader]: crypto.randomUUID(),
  };
  const request = new Request("http://localhost/mcp", { method: "POST", headers, body });
  const response = await serveMcp(
    {
      request,
      body,
      countMore: async (calls) => void (counted += calls),
      isStopping: () => false,
      inSequence: (read) => read(),
    },
    {
      api: async (path) => {
        asked.push(path);
        return answer();
      },
      version: "0",
      keep: () => {},
    },
  );
  return { response, asked, counted };
}

const outage = () => new Response("{}", { status: 503, headers: { "Retry-After": "5" } });

test("a request with more messages than a batch may have cancels nothing", async () => {
  const messages = Array.from({ length: 101 }, (_, n) => cancelled(n));
  const { response, asked } = await send(messages, outage);
  expect([response.status, asked]).toEqual([400, []]);
});

test("each message of a batch counts for the rate limit", async () => {
  const messages = [cancelled(1), cancelled(2), cancelled(3)];
  expect((await send(messages, outage)).counted).toBe(3);
});

test("a cancellation that the service cannot serve at the moment gets the service's own answer", async () => {
  const { response } = await send([cancelled(1)], outage);
  expect(response.status).toBe(503);
  expect(response.headers.get("Retry-After")).toBe("5");
});
