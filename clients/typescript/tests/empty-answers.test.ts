import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, test } from "vitest";
import { connect, ConnectionError } from "../src/index.ts";

/** What the client makes of a file whose answer has these bytes. */
async function fetched(answer: string): Promise<number> {
  const server = createServer((socket) => {
    socket.once("data", () => socket.end(answer));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  try {
    const airlock = connect({ url: `http://127.0.0.1:${port}`, retries: 0 });
    return (await airlock.files.get("f")).length;
  } finally {
    server.close();
  }
}

test.each([
  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
])("an empty file is an answer like any other: %j", async (answer) => {
  expect(await fetched(answer)).toBe(0);
});

test.each([
  "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
])("an answer whose end is not said or missing counts as broken: %j", async (answer) => {
  await expect(fetched(answer)).rejects.toThrow(ConnectionError);
});
