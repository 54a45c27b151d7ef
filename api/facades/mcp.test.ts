import { expect, test } from "vitest";
import { boundDownloads, createSequence, serveMcp, sessionHeader } from "./mcp.ts";

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

const path = "/jobs/1/artifacts/a";
const file = (bytes: number) => new Uint8Array(bytes);
const sized = (bytes: number) => {
  return new Response(file(bytes), { headers: { "Content-Length": String(bytes) } });
};

test("of many reads at once, so many as there are turns are open, and all are answered", async () => {
  let open = 0;
  let most = 0;
  const inSequence = createSequence(3);
  const read = async () => {
    most = Math.max(most, ++open);
    for (let n = 0; n < 5; n++) await Promise.resolve();
    open--;
    return sized(1);
  };
  const reads = Array.from({ length: 20 }, () => boundDownloads(read, 1, inSequence)(path));
  expect((await Promise.all(reads)).every(({ ok }) => ok)).toBe(true);
  expect([most, open]).toEqual([3, 0]);
});

test("a read that fails gives its turn to the next", async () => {
  const inSequence = createSequence(1);
  const broken = boundDownloads(() => Promise.reject(new Error("no answer")), 1, inSequence);
  const [first, second] = [broken(path), boundDownloads(async () => sized(1), 1, inSequence)(path)];
  await expect(first).rejects.toThrow("no answer");
  expect((await second).status).toBe(200);
});

test("files of one request have a number of bytes together; other answers do not count", async () => {
  const api = boundDownloads(
    async () => sized(3),
    5,
    (read) => read(),
  );
  for (const other of ["/jobs/1/artifacts", "/executions/1", "/jobs/1/logs"]) await api(other);
  expect((await (await api(path)).arrayBuffer()).byteLength).toBe(3);
  await expect(api(path)).rejects.toThrow("5 bytes");
});
