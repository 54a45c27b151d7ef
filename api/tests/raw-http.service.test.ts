import { execFile } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { peakBytes } from "../../shared/testing/memory.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import { Problem } from "../../shared/wire/errors.ts";
import { agentTokens, Api, servers } from "../testing/contract/api.ts";
import { sendRaw, statusOf } from "../testing/follower.ts";
import { startNode } from "../testing/start-node.ts";

describe("raw http", async () => {
  const api = await startNode(servers.open);
  const client = new Api(api.url);

  const fields = "Host: localhost\r\nConnection: close\r\n";
  const get = (path: string, more = "") => `GET ${path} HTTP/1.1\r\n${fields}${more}\r\n`;
  const post = (more: string, body: string) =>
    `POST /execute/async HTTP/1.1\r\n${fields}Content-Type: application/json\r\n${more}\r\n${body}`;
  const code = '{"code":"1"}';
  const chunked = "Transfer-Encoding: chunked\r\n";
  const latin1 = (text: string) => Buffer.from(text, "latin1");

  /** Complete requests and the status of their answers. */
  const requests: [title: string, bytes: string | Uint8Array, status: number][] = [
    ["another protocol's version", "GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n", 400],
    ["no Host", "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 400],
    ["no Host, which HTTP/1.0 allows", "GET /health/live HTTP/1.0\r\n\r\n", 200],
    [
      "a Host that is none",
      "GET /health HTTP/1.1\r\nHost: a b/..?\r\nConnection: close\r\n\r\n",
      400,
    ],
    [
      "two Hosts, of which the first is this machine's",
      "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: other.example\r\nConnection: close\r\n\r\n",
      400,
    ],
    ["line feeds alone", "GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n", 400],
    ["a method nobody knows", `BREW /health HTTP/1.1\r\n${fields}\r\n`, 400],
    ["a method with NUL", `G\0T /health HTTP/1.1\r\n${fields}\r\n`, 400],
    ["a method of 5,000 letters", `${"A".repeat(5000)} /health HTTP/1.1\r\n${fields}\r\n`, 400],
    ["a method of another service", `PROPFIND /health HTTP/1.1\r\n${fields}\r\n`, 405],
    ["TRACE", `TRACE /health HTTP/1.1\r\n${fields}\r\n`, 405],
    ["TRACE of nothing", `TRACE /nowhere HTTP/1.1\r\n${fields}\r\n`, 404],
    ["OPTIONS *", `OPTIONS * HTTP/1.1\r\n${fields}\r\n`, 400],
    ["a percent sign alone", get("/jobs/%"), 404],
    ["no hex digits after it", get("/jobs/%zz"), 404],
    ["bytes that are not UTF-8, encoded", get("/jobs/%ff%fe"), 404],
    ["bytes that are not UTF-8, plain", latin1(get("/jobs/\xff\xfe")), 400],
    ["NUL, encoded", get("/jobs/%00"), 404],
    ["NUL, plain", get("/jobs/\0"), 400],
    ["slashes", get("//health"), 404],
    ["nothing but slashes", get("/////"), 404],
    ["dots that lead out, encoded", get("/jobs/x/artifacts/%2e%2e%2f%2e%2e"), 400],
    ["dots that lead out, with backslashes", get("/jobs/x/artifacts/..\\..\\x"), 400],
    ["dots that stay inside", get("/jobs/../health"), 200],
    ["no slash at the start", get("health"), 400],
    ["another server's address", get("http://other.example/health"), 403],
    ["an address that is none", get("http://["), 400],
    ["a query that is none", get("/executions?limit=%zz&%=%"), 400],
    ["a path of 8,000 letters", get(`/jobs/${"a".repeat(8000)}`), 404],
    ["a path of 100,000 letters", get(`/${"a".repeat(100_000)}`), 431],
    ["a header of 100,000 letters", get("/health", `X: ${"a".repeat(100_000)}\r\n`), 431],
    ["2,500 headers", get("/health", "a: b\r\n".repeat(2500)), 431],
    ["a header with NUL", get("/health", "X: a\0b\r\n"), 400],
    ["a folded header", get("/health", "X: a\r\n b\r\n"), 400],
    ["a header without a name", get("/health", ": x\r\n"), 400],
    ["a space before the colon", get("/health", "X : x\r\n"), 400],
    ["a header that is not UTF-8", latin1(get("/health", "X-Correlation-ID: \xff\xfe\r\n")), 200],
    ["two correlation ids", get("/health", "X-Correlation-ID: a\r\nX-Correlation-ID: b\r\n"), 200],
    ["a body on a GET", get("/jobs/x", "Content-Length: 5\r\n") + "hello", 404],
    [
      "an upgrade",
      "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n",
      200,
    ],
    ["an expectation nobody knows", post("Expect: cake\r\nContent-Length: 2\r\n", "{}"), 400],
    ["a chunk size that is none", post(chunked, "zz\r\n{}\r\n0\r\n\r\n"), 400],
    ["a chunk size past any number", post(chunked, "ffffffffffffffffff\r\n{"), 400],
    ["an encoding nobody knows", post("Transfer-Encoding: junk\r\n", "{}"), 400],
    [
      "gzip under chunks",
      post("Transfer-Encoding: gzip, chunked\r\n", `c\r\n${code}\r\n0\r\n\r\n`),
      400,
    ],
    [
      "two encodings, of which the last is chunks",
      post(`Transfer-Encoding: identity\r\n${chunked}`, `c\r\n${code}\r\n0\r\n\r\n`),
      400,
    ],
    [
      "chunks in HTTP/1.0, which has none",
      post(chunked, `c\r\n${code}\r\n0\r\n\r\n`).replace("1.1", "1.0"),
      400,
    ],
    ["chunks and a length", post(`${chunked}Content-Length: 5\r\n`, "0\r\n\r\n"), 400],
    ["two lengths", post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), 400],
    ["a negative length", post("Content-Length: -1\r\n", "{}"), 400],
    ["a length past any number", post("Content-Length: 999999999999999999999\r\n", "{}"), 400],
    ["a length past the limit", post("Content-Length: 1073741824\r\n", "{}"), 413],
    [
      "a type with a space before its parameter",
      `POST /execute/async HTTP/1.1\r\n${fields}Content-Type: application/json ; x=y\r\nContent-Length: ${code.length}\r\n\r\n${code}`,
      202,
    ],
    ["chunks, in capitals", post(chunked.toUpperCase(), `c\r\n${code}\r\n0\r\n\r\n`), 202],
    ["chunks, well formed", post(chunked, `c\r\n${code}\r\n0\r\n\r\n`), 202],
  ];

  test.each(requests)("%s", async (_title, bytes, status) => {
    const answer = await sendRaw(api.url, bytes);
    expect({ status: statusOf(answer), answer }).toEqual({ status, answer });
    const [head = "", body = ""] = answer.split(/\r\n\r\n(.*)/s);
    expect(head).toMatch(/^x-correlation-id: \S+$/im);
    expect(head).toMatch(/^x-content-type-options: nosniff$/im);
    expect(head).toMatch(/^x-frame-options: DENY$/im);
    const problem = status < 400 || Problem.parse(JSON.parse(body)).status === status;
    expect(problem).toBe(true);
  });

  test.each<[title: string, bytes: string, status: number | undefined]>([
    ["nothing", "", undefined],
    ["a TLS greeting", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400],
    ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400],
    ["empty lines", "\r\n\r\n\r\n", undefined],
    ["half a header", "GET /health HTTP/1.1\r\nHo", 400],
    ["half a chunk", post(chunked, '5\r\n{"c'), 400],
    ["half a body", post("Content-Length: 50\r\n", "{}"), 400],
    ["CONNECT", `CONNECT a:1 HTTP/1.1\r\n${fields}\r\n`, undefined],
    [
      "a request and then none",
      "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGARBAGE\r\n\r\n",
      200,
    ],
  ])("a client that hangs up after %s", async (_title, bytes, status) => {
    expect(statusOf(await sendRaw(api.url, bytes, true))).toBe(status);
  });

  /** Opens `size` connections and sends these bytes on each. */
  async function crowd(size: number, bytes: string): Promise<Socket[]> {
    const { hostname, port } = new URL(api.url);
    return Promise.all(
      Array.from({ length: size }, async () => {
        const socket = connect(Number(port), hostname);
        onTestFinished(() => void socket.destroy());
        socket.on("error", () => {});
        await once(socket, "connect");
        socket.write(bytes);
        return socket;
      }),
    );
  }

  /** Submits a job and runs it to its end; returns its id. */
  async function serveJob(): Promise<string> {
    const agent = client.agent();
    const { job_id } = await client.submit();
    // Requests of the rows above have left jobs.
    for (let taken = ""; taken !== job_id;) {
      const { lease_id, execution_id } = await agent.takeJob();
      expect((await agent.result(lease_id)).status).toBe(200);
      taken = execution_id;
    }
    expect((await client.job(job_id)).status).toBe("succeeded");
    return job_id;
  }

  const head =
    "POST /execute/async HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

  test.each([
    ["500 idle connections", 500, ""],
    [
      "200 clients whose headers come drop by drop",
      200,
      "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Drop",
    ],
    ["200 bodies that never end", 200, `${head}Content-Length: 1000\r\n\r\n{"code": "`],
    ["200 bodies without a length", 200, `${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{"cod`],
  ])("fault 12: while there are %s, other clients are served", async (_what, size, bytes) => {
    const before = await client.newest();
    const held = await crowd(size, bytes);
    const first = await serveJob();
    for (const socket of held) if (bytes !== "") socket.write(bytes.includes("{") ? " " : "s");
    const second = await serveJob();
    // No unfinished request became a job.
    expect(await client.newest()).toEqual([second, first, ...before].slice(0, 10));
  });

  test("after all these requests it still serves, and nothing was logged as an error of the service", async () => {
    const response = await fetch(`${api.url}/health`);
    expect(response.status).toBe(200);
    expect(api.child.exitCode).toBeNull();
    await api.close();
    expect(await api.logged).toBe("");
  });
});

describe("too large", async () => {
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
    const before = peakBytes(api.child.pid!);
    expect((await send()).status).toBe(202);
    const ofOne = peakBytes(api.child.pid!) - before;
    const answers = await Promise.all(Array.from({ length: 16 }, () => send()));
    const refused = answers.filter(({ status }) => status === 503);
    expect(answers.filter(({ status }) => status === 202).length + refused.length).toBe(16);
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.every(({ headers }) => headers.get("Retry-After") === "1")).toBe(true);
    // The one that is taken, and what was left of the one before.
    expect(peakBytes(api.child.pid!) - before).toBeLessThan(3 * ofOne);
    expect((await send()).status).toBe(202);
  });

  test("a request that waits for its job holds no memory of its body", async () => {
    const client = new Api(api.url);
    const agent = client.agent();
    await agent.poll({ free_slots: 0 });
    const code = "#".repeat(9 * MiB);
    const waiting: ReturnType<Api["post"]>[] = [];
    // Together they have more than the bodies of a client may have.
    for (let n = 0; n < 9; n++) {
      const [before] = await client.newest();
      const post = async (): ReturnType<Api["post"]> => {
        const answer = await client.post("/execute", { code }, { "Idempotency-Key": `waits-${n}` });
        if (answer.status !== 503) return answer;
        // The bodies of the test before may be under way still, or the machine is so slow that the agent counts as gone.
        await agent.poll({ free_slots: 0 });
        return post();
      };
      waiting.push(post());
      await waitUntil("the job is stored", async () => (await client.newest())[0] !== before);
    }
    for (const id of (await client.newest()).slice(0, 9)) await client.post(`/jobs/${id}/cancel`);
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(Array(9).fill(200));
  });
});
