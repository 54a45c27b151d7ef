import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { pythonClient } from "../../testing/python-client.ts";

const python = pythonClient();
let server: Server;
let url: string;
/** Answers everything with a page, as a proxy's login does. */
beforeAll(async () => {
  server = createServer((request, response) => {
    const status = request.url?.startsWith("/gone") ? 404 : 200;
    response.writeHead(status, { "content-type": "text/html" }).end("<html>\n<p>x</p>\n</html>\n");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server.close());

test("what something else than Airlock answers is told in words", async () => {
  const program = `
def told(work):
    try:
        return work()
    except airlock.AirlockError as error:
        return "%s: %s" % (type(error).__name__, error)
url = sys.argv[1]
client = airlock.connect(url, retries=1)
print(json.dumps([
    told(lambda: client.run("1")),
    told(lambda: list(client.stream("1"))),
    told(lambda: airlock.connect(url + "/gone").run("1")),
    told(lambda: airlock.connect(url.replace("http:", "https:"), retries=0).run("1")),
]))`;
  expect(await python.run<string[]>(program, url)).toEqual([
    `ConnectionError: ${url} did not answer as Airlock does: check the address, and what is between.`,
    "ConnectionError: The events are not those of Airlock: check the address.",
    "ProblemError: HTTP 404 without a problem of Airlock's: the address answered with a page: check it",
    `ConnectionError: ${url.replace("http:", "https:")} could not be reached: it does not speak TLS; try http://`,
  ]);
});

test("a key that no header can carry is refused before it is sent, and not shown", async () => {
  const program = `
def told(key):
    try:
        airlock.connect("http://127.0.0.1:1", key)
    except airlock.AirlockError as error:
        return str(error)
print(json.dumps([told(key) for key in ("secret…", "secret\\n", "two words", "")]))`;
  const refusals = await python.run<string[]>(program);
  expect(new Set(refusals).size).toBe(1);
  expect(refusals[0]).toMatch(/^The API key is empty or has a character/);
});

test("a wait has its bound, also where the service is silent", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const program = `
import time
client = airlock.connect(sys.argv[1])
began = time.monotonic()
try:
    client.wait("1", wait_s=0)
except airlock.NoAnswerError:
    print(json.dumps(time.monotonic() - began < 30))`;
  const { port } = silent.address() as AddressInfo;
  expect(await python.run(program, `http://127.0.0.1:${port}`)).toBe(true);
  silent.closeAllConnections();
  silent.close();
});

test("an address that is none is told in words", async () => {
  const program = `
def told(url):
    try:
        return airlock.connect(url).url
    except airlock.AirlockError as error:
        return "refused"
print(json.dumps([told(url) for url in ("foo", "http://h:abc", "http://[::1", "http://console")]))`;
  expect(await python.run(program)).toEqual(["refused", "refused", "refused", "http://console"]);
});

test("address and key come from the environment, and a page of the console stands for its service", async () => {
  const program = `
import os
os.environ.update(AIRLOCK_URL="http://airlock.test/console/jobs/1", AIRLOCK_KEY="k")
with airlock.connect() as client:
    print(json.dumps([client.url, client._transport.key, airlock.connect("http://other.test")._transport.key]))`;
  expect(await python.run(program)).toEqual(["http://airlock.test", "k", null]);
});
