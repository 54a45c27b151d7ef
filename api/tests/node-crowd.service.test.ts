import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, expect, test } from "vitest";
import { Api } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { startNode } from "../testing/start-node.ts";

const sockets: Socket[] = [];
const service = await startNode(servers.open);
const api = new Api(service.url);
afterAll(async () => {
  for (const socket of sockets) socket.destroy();
  await service.close();
});

/** Opens `size` connections and sends these bytes on each. */
async function crowd(size: number, bytes: string): Promise<Socket[]> {
  const { hostname, port } = new URL(service.url);
  return Promise.all(
    Array.from({ length: size }, async () => {
      const socket = connect(Number(port), hostname);
      sockets.push(socket);
      socket.on("error", () => {});
      await once(socket, "connect");
      socket.write(bytes);
      return socket;
    }),
  );
}

/** Submits a job and runs it to its end; returns its id. */
async function serveJob(): Promise<string> {
  const agent = api.agent();
  const { job_id } = await api.submit();
  const { lease_id } = await agent.takeJob();
  expect((await agent.result(lease_id)).status).toBe(200);
  expect((await api.job(job_id)).status).toBe("succeeded");
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
  const before = await api.newest();
  const held = await crowd(size, bytes);
  const first = await serveJob();
  for (const socket of held) if (bytes !== "") socket.write(bytes.includes("{") ? " " : "s");
  const second = await serveJob();
  // No unfinished request became a job.
  expect(await api.newest()).toEqual([second, first, ...before].slice(0, 10));
});
