import { expect, test } from "vitest";
import { Problem } from "../../shared/wire/errors.ts";
import { sendRaw, statusOf } from "../testing/raw-http.ts";
import { startNode } from "../testing/start-node.ts";

const api = await startNode({
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_AGENT_TOKENS: "a-token-of-the-agent",
});

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
  ["gzip under chunks", post("Transfer-Encoding: gzip, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 400],
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

test("after all these requests it still serves, and nothing was logged as an error of the service", async () => {
  const response = await fetch(`${api.url}/health`);
  expect(response.status).toBe(200);
  expect(api.child.exitCode).toBeNull();
  await api.close();
  expect(await api.logged).toBe("");
});
