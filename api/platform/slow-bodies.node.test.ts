import { once } from "node:events";
import { connect, type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { buffer, text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, test } from "vitest";
import { getLogger } from "@logtape/logtape";
import type { Server } from "node:http";
import { httpServer } from "./http-server.node.ts";

/** More than the buffers of both sockets hold. */
const largeBytes = 64 * 1024 * 1024;

function streamed(): ReadableStream {
  let left = largeBytes;
  return new ReadableStream({
    pull(controller) {
      controller.enqueue(new Uint8Array(64 * 1024));
      left -= 64 * 1024;
      if (left === 0) controller.close();
    },
  });
}

let server: Server;
beforeEach(async () => {
  const answer = async (request: Request) => {
    const body = await request.text();
    if (request.url.endsWith("/late")) await sleep(600);
    if (request.url.endsWith("/large")) return new Response("x".repeat(largeBytes));
    if (request.url.endsWith("/streamed")) return new Response(streamed());
    return new Response(`got ${body}`);
  };
  const times = { bodyMs: 300, silenceMs: 2000, unreadMs: 100 };
  server = httpServer(answer, { log: getLogger("test"), newId: () => "id" }, times);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

/** Sends a request with these bytes of a body of six, one each 100 ms, and reads the whole answer. */
async function sent(line: string, bytes: string): Promise<string> {
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {});
  const answer = text(socket);
  socket.write(`${line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\n`);
  for (const byte of bytes) {
    await sleep(100);
    socket.write(byte);
  }
  return answer;
}

const uploads = ["POST /files?name=a", "PUT /agent/v1/leases/1/artifacts/a"];

test.each(uploads)("%s may take longer than other requests, while it goes on", async (line) => {
  expect(await sent(line, "123456")).toContain("got 123456");
});

test.each(uploads)("%s is ended when it sends nothing for a time", async (line) => {
  const answer = await sent(line, "12");
  expect(answer).toContain("408 Request Timeout");
  expect(answer).toContain("did not arrive in time");
});

test.each(["POST /execute", "POST /filesystem", "PUT /files"])(
  "the body of %s has a time limit as a whole",
  async (line) => {
    expect(await sent(line, "123456")).toContain("408 Request Timeout");
  },
);

test("a request whose body has arrived may wait longer than that for its answer", async () => {
  const { port } = server.address() as AddressInfo;
  const answer = await fetch(`http://127.0.0.1:${port}/late`, { method: "POST", body: "{}" });
  expect(await answer.text()).toBe("got {}");
});

/** Asks for an answer, and reads nothing of it. */
async function askUnread(path: string) {
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
  const [connection] = await accepted;
  return { socket, ended: once(connection, "close") };
}

test("a large answer that the client does not read is given up; a stream waits for its reader", async () => {
  const streamed = await askUnread("/streamed");
  for (let n = 0; n < 2; n++) {
    const large = await askUnread("/large");
    await large.ended;
    large.socket.destroy();
  }
  expect((await buffer(streamed.socket)).length).toBeGreaterThan(largeBytes);
});
