import { execFile } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { Api } from "../testing/contract/api.ts";
import { agentTokens } from "../testing/contract/servers.ts";
import { residentBytes } from "../testing/resident.ts";
import { sendRaw, statusOf } from "../testing/raw-http.ts";
import { startNode } from "../testing/start-node.ts";

const MiB = 1024 * 1024;

const api = await startNode({
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_AGENT_TOKENS: agentTokens.join(","),
});
afterAll(() => api.close());

const urllib = `
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], b"x" * int(sys.argv[2]), {"Content-Type": "application/json"})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    print(error.code, error.headers["Content-Type"], error.read().decode())
`;
const requests = (data: string) => `
import sys
try:
    import requests
except ImportError:
    from pip._vendor import requests
bytes = int(sys.argv[2])
reply = requests.post(sys.argv[1], data=${data}, headers={"Content-Type": "application/json"})
print(reply.status_code, reply.headers["Content-Type"], reply.text)
`;

/** What a Python program prints of the answer to a body of 30 MiB. */
async function answerTo(program: string): Promise<string> {
  const sent = [`${api.url}/execute`, String(30 * MiB)];
  const { stdout } = await promisify(execFile)("python3", ["-c", program, ...sent]);
  return stdout;
}
const refusal = /^413 application\/problem\+json \{.*max_request_bytes/;

test("Python's urllib gets 413 for a body of 30 MiB", needs("python3"), async () => {
  expect(await answerTo(urllib)).toMatch(refusal);
});

test.each([
  ["requests", requests('b"x" * bytes')],
  ["requests in chunks", requests('(b"x" * 65536 for _ in range(bytes // 65536))')],
])("Python's %s gets 413 for a body of 30 MiB", needs("requests"), async (_client, program) => {
  expect(await answerTo(program)).toMatch(refusal);
});

/** The answer to a client that sends its whole body before it reads. */
async function sendWhole(headers: string, body: Uint8Array): Promise<string> {
  const { hostname, port } = new URL(api.url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  const head = `POST /execute HTTP/1.1\r\nHost: ${hostname}\r\nContent-Type: application/json\r\n`;
  socket.write(`${head}${headers}\r\n\r\n`);
  await new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.write(body, resolve);
  });
  return text(socket);
}

test("a client that sends its whole body before it reads gets 413, then the connection ends", async () => {
  const body = Buffer.alloc(30 * MiB, "x");
  const announced = await sendWhole(`Content-Length: ${body.length}`, body);
  expect(statusOf(announced)).toBe(413);
  const chunk = Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body]);
  const chunked = await sendWhole(
    "Transfer-Encoding: chunked",
    Buffer.concat([chunk, Buffer.from("\r\n0\r\n\r\n")]),
  );
  expect(statusOf(chunked)).toBe(413);
});

const endless = `
import socket, sys
from urllib.parse import urlsplit
url = urlsplit(sys.argv[1])
client = socket.create_connection((url.hostname, url.port))
client.sendall(b"POST /execute HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n")
client.sendall(b"Transfer-Encoding: chunked\\r\\n\\r\\n")
sent = 0
try:
    while True:
        sent += client.send(b"100000\\r\\n" + b"x" * 0x100000 + b"\\r\\n")
except OSError:
    print(sent)
`;

test("the service reads only a limited amount of a body that never ends", async () => {
  const { stdout } = await promisify(execFile)("python3", ["-c", endless, api.url]);
  expect(Number(stdout)).toBeGreaterThan(64 * MiB);
  expect(Number(stdout)).toBeLessThan(128 * MiB);
});

test("a body whose announced length is above the amount that would be read and dropped is refused at once", async () => {
  const head = `POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
  const answer = await sendRaw(api.url, `${head}Content-Length: ${1024 * MiB}\r\n\r\n{}`);
  expect(statusOf(answer)).toBe(413);
});

test("bodies that come at once take bounded memory: the others are 503 with Retry-After, and are taken later", async () => {
  const code = "#".repeat(9 * MiB);
  const batch = JSON.stringify({ jobs: [{ code }, { code }, { code }] });
  const send = async (path = "/execute/batch", body = batch) =>
    fetch(`${api.url}${path}`, {
      method: "POST",
      body,
      headers: { "Content-Type": "application/json" },
    });
  const before = residentBytes(api, "peak");
  expect((await send()).status).toBe(202);
  const ofOne = residentBytes(api, "peak") - before;
  const answers = await Promise.all(Array.from({ length: 16 }, () => send()));
  const refused = answers.filter(({ status }) => status === 503);
  expect(answers.filter(({ status }) => status === 202).length + refused.length).toBe(16);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.every(({ headers }) => headers.get("Retry-After") === "1")).toBe(true);
  // The one that is taken, and what was left of the one before.
  expect(residentBytes(api, "peak") - before).toBeLessThan(3 * ofOne);
  expect((await send()).status).toBe(202);
});

test("a request that waits for its job holds no memory of its body", async () => {
  const client = new Api(api.url);
  await client.agent().poll({ free_slots: 0 });
  const code = "#".repeat(9 * MiB);
  const waiting: ReturnType<Api["post"]>[] = [];
  // Together they have more than the bodies of a client may have.
  for (let n = 0; n < 9; n++) {
    const [before] = await client.newest();
    waiting.push(client.post("/execute", { code }, { "Idempotency-Key": `waits-${n}` }));
    await waitUntil("the job is stored", async () => (await client.newest())[0] !== before);
  }
  for (const id of (await client.newest()).slice(0, 9)) await client.post(`/jobs/${id}/cancel`);
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(Array(9).fill(200));
});
