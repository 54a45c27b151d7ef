import { once } from "node:events";
import type { Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { buffer, text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { getLogger } from "@logtape/logtape";
import { Hono } from "hono";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { waitUntil } from "../../shared/testing/test-file.ts";
import { type BodyTimes, clientAddress, httpServer } from "./http-server.node.ts";

describe("http server", () => {
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
  let start: (times?: BodyTimes) => Promise<void>;
  /** Requests that have been taken, and those of them that are answered when it resolves. */
  let taken: number;
  let release: PromiseWithResolvers<void>;
  beforeEach(async () => {
    taken = 0;
    release = Promise.withResolvers();
    const answer = async (request: Request) => {
      taken++;
      if (request.url.endsWith("?parts")) {
        const parts: Uint8Array[] = [];
        for await (const part of request.body as ReadableStream<Uint8Array>) parts.push(part);
        const text = Buffer.concat(parts).toString();
        return Response.json({
          parts: parts.length,
          areBuffers: parts.every((part) => Buffer.isBuffer(part)),
          text,
        });
      }
      const body = await request.text();
      if (request.url.includes("/held")) {
        await release.promise;
        return new Response(`[${request.url.split("?")[1]} ${body}]`);
      }
      if (request.url.endsWith("/late")) await sleep(600);
      if (request.url.endsWith("/large")) return new Response("x".repeat(largeBytes));
      if (request.url.endsWith("/streamed")) return new Response(streamed());
      return new Response(`got ${body}`);
    };
    start = async (times) => {
      server?.close();
      server = httpServer(answer, { log: getLogger("test"), newId: () => "id" }, times);
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
    };
    await start({ bodyMs: 300, partMs: 300, silenceMs: 2000, unreadMs: 100, restMs: 600_000 });
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

  test.each([
    ["with its length", "Content-Length: 4194304", (part: string) => part],
    [
      "in chunks",
      "Transfer-Encoding: chunked",
      (part: string) => `${part.length.toString(16)}\r\n${part}\r\n`,
    ],
  ])(
    "a large body %s is ended if a part of it comes too slowly, and read to its end otherwise",
    async (_how, field, encode) => {
      await start({ bodyMs: 600_000, partMs: 5000, silenceMs: 1, unreadMs: 100, restMs: 600_000 });
      const send = async (bytes: number) => {
        const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
        socket.on("error", () => {});
        const answer = text(socket);
        socket.write(`POST /execute HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${field}\r\n\r\n`);
        socket.write(encode("x".repeat(2 * 1024 * 1024)));
        for (let sent = 0; sent < 2 * 1024 * 1024 && !socket.closed; sent += bytes) {
          await sleep(300);
          socket.write(encode("x".repeat(bytes)));
        }
        if (!field.startsWith("Content")) socket.write("0\r\n\r\n");
        return answer;
      };
      expect(await send(1024)).toContain("408 Request Timeout");
      expect(await send(512 * 1024)).toContain(`got ${"x".repeat(4 * 1024 * 1024)}`);
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

  test("what comes of a body after the answer is read slowly and for a short time, and nothing of it stays", async () => {
    await start({ bodyMs: 600_000, partMs: 600_000, silenceMs: 1, unreadMs: 600_000, restMs: 500 });
    const timers = () => process.getActiveResourcesInfo().filter((one) => one === "Timeout").length;
    const before = timers();
    const read: Socket[] = [];
    server.on("connection", (socket: Socket) => read.push(socket));
    const chunk = `10000\r\n${"x".repeat(65_536)}\r\n`;
    const sockets = Array.from({ length: 10 }, (_, n) => {
      const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
      const send = (): void => {
        while (!socket.destroyed && socket.write(chunk));
      };
      socket.on("error", () => {}).on("drain", send);
      socket.write(`GET /?${n} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`);
      // The first goes after its answer; the others never stop.
      socket.once("data", () => (n === 0 ? socket.destroy() : send()));
      return new Promise((resolve) => {
        socket.once("close", resolve);
      });
    });
    await Promise.all(sockets);
    await waitUntil("no timer of these is left", () => timers() <= before);
    const bytes = read.reduce((sum, { bytesRead }) => sum + bytesRead, 0);
    // 64 KiB a millisecond, for 500 ms.
    expect(bytes).toBeLessThan(48 * 1024 * 1024);
  });

  test("a client that reads nothing before it has sent its body, slowly, gets the answer", async () => {
    await start();
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
    const parts = 15;
    const part = "x".repeat(65_536);
    socket.write(`GET / HTTP/1.1\r\nHost: a\r\nContent-Length: ${parts * part.length}\r\n\r\n`);
    for (let n = 0; n < parts; n++) {
      await sleep(100);
      await new Promise((resolve) => {
        socket.write(part, resolve);
      });
    }
    expect(String((await once(socket, "data"))[0])).toMatch(/^HTTP\/1.1 200 /);
    socket.destroy();
  });

  /** Requests in one piece, of which each fourth has a body that looks like requests, or comes in chunks. */
  function pipelined(count: number): string {
    const body = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    const requests = Array.from({ length: count }, (_, n) => {
      const line = (method: string) => `${method} /held?${n} HTTP/1.1\r\nHost: a\r\n`;
      const length = body.length.toString(16);
      if (n % 4 === 1) return `${line("POST")}Content-Length: ${body.length}\r\n\r\n${body}`;
      if (n % 4 === 3)
        return `${line("POST")}Transfer-Encoding: chunked\r\n\r\n${length}\r\n${body}\r\n0\r\n\r\n`;
      return `${line("GET")}\r\n`;
    });
    return requests.join("");
  }

  test("each connection's requests are taken one after the other, whatever has arrived", async () => {
    const { port } = server.address() as AddressInfo;
    const before = process.memoryUsage().rss;
    const requests = Buffer.from("GET /held HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50_000));
    const sockets = Array.from({ length: 10 }, () => connect(port, "127.0.0.1"));
    for (const socket of sockets) socket.on("error", () => {}).write(requests);
    await waitUntil("a request of each connection is taken", () => taken === 10);
    // Another connection's requests come after all that these have sent and the server was to read.
    for (let n = 0; n < 20; n++) await fetch(`http://127.0.0.1:${port}/`);
    expect(taken).toBe(10 + 20);
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
    for (const socket of sockets) socket.destroy();
  });

  test("requests that are sent before their answers leave time to others'", async () => {
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
    release.resolve();
    const before = performance.now();
    socket.write(pipelined(20));
    await waitUntil("all are taken", () => taken === 20);
    expect(performance.now() - before).toBeGreaterThan(19 * 4);
    socket.destroy();
  });

  test.each([
    ["at once", Infinity],
    ["byte by byte", 1],
    ["three bytes at a time", 3],
    ["in parts that end anywhere", 37],
  ])(
    "requests that are sent before their answers, %s, are answered in order",
    async (_how, size) => {
      const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
      const count = size === Infinity ? 500 : 12;
      const bytes = `${pipelined(count)}GET /held?last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`;
      socket.setNoDelay(true);
      const answers = text(socket);
      release.resolve();
      for (let at = 0; at < bytes.length; at += size) {
        socket.write(bytes.slice(at, at + size));
        if (size !== Infinity) await new Promise(setImmediate);
      }
      const seen = [...(await answers).matchAll(/\[(\w+) (.*?)\]/gs)];
      expect(seen.map(([, n]) => n)).toEqual([
        ...Array.from({ length: count }, (_, n) => `${n}`),
        "last",
      ]);
      expect(seen.map(([, , body]) => body!.length)).toEqual(
        seen.map((_, n) => (n % 2 === 1 && n < count ? 62 : 0)),
      );
    },
  );

  test.each([
    [
      "chunks of one byte",
      "Transfer-Encoding: chunked",
      (byte: string) => `1\r\n${byte}\r\n`,
      "0\r\n\r\n",
      40,
    ],
    ["segments of one byte", "Content-Length: 100000", (byte: string) => byte, "", 1],
  ])(
    "a body that comes in %s reaches the app in large parts",
    async (_how, field, encode, end, size) => {
      const sent = Array.from({ length: 100_000 }, (_, n) => "0123456789abcdefg"[n % 17]!);
      const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
      socket.setNoDelay(true);
      const answer = text(socket);
      socket.write(
        `POST /files?parts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${field}\r\n\r\n`,
      );
      for (let at = 0; at < sent.length; at += size) {
        socket.write(
          sent
            .slice(at, at + size)
            .map(encode)
            .join(""),
        );
        if (at % 50 === 0) await new Promise(setImmediate);
      }
      socket.write(end);
      const [, body = ""] = (await answer).split("\r\n\r\n");
      const got = JSON.parse(body) as { parts: number; areBuffers: boolean; text: string };
      expect(got.text === sent.join("")).toBe(true);
      // As Node made them: copies are plain arrays.
      expect(got.areBuffers).toBe(true);
      expect(got.parts).toBeLessThan(10);
    },
  );

  test.each([1, 7, 1000, 100_000])(
    "chunks of any size and form, in segments of %i bytes, have the bytes that were sent",
    async (segment) => {
      const forms = [
        (size: number) => size.toString(16),
        (size: number) => size.toString(16).toUpperCase(),
        (size: number) => `00${size.toString(16)}`,
        (size: number) => `${size.toString(16)};name=value`,
        (size: number) => `${"0".repeat(20)}${size.toString(16)}`,
      ];
      // A chunk with a name leaves the rest of its segment to the parser: the first ones have none.
      const parts = Array.from({ length: 400 }, (_, n) => {
        const size = n % 49 === 48 ? 3000 : 1 + ((n * 7) % 30);
        return {
          data: `${n}\r\n0\r\n`.padEnd(size, "=").slice(0, size),
          form: forms[n % (n < 100 ? 3 : 5)]!,
        };
      });
      const chunks = parts.map(({ data, form }) => `${form(data.length)}\r\n${data}\r\n`);
      const { port } = server.address() as AddressInfo;
      const socket = connect(port, "127.0.0.1");
      socket.setNoDelay(true);
      const answer = text(socket);
      const head = "POST /files?a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
      const next = "GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
      const bytes = `${head}${chunks.join("")}0\r\n\r\n${next}`;
      for (let at = 0; at < bytes.length; at += segment) {
        socket.write(bytes.slice(at, at + segment));
        await new Promise(setImmediate);
      }
      const answers = await answer;
      expect(answers.includes(`got ${parts.map(({ data }) => data).join("")}`)).toBe(true);
      expect(answers.endsWith("got ")).toBe(true);
    },
  );

  test.each(["2\r\na\r\n", "1\r\nab\r\n", "g\r\na\r\n", "1\na\n", "1 \r\na\r\n", "-1\r\na\r\n"])(
    "a body with the chunk %j among others is refused",
    async (wrong) => {
      const { port } = server.address() as AddressInfo;
      const socket = connect(port, "127.0.0.1");
      const answer = text(socket);
      socket.write("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
      socket.write(`${"1\r\na\r\n".repeat(3)}${wrong}${"1\r\na\r\n".repeat(3)}0\r\n\r\n`);
      expect(await answer).toMatch(/^HTTP\/1.1 400 /);
    },
  );

  test.each(["1", "000000001"])(
    "chunks of one byte, as %s, cost little more than the same bytes in one chunk",
    async (size) => {
      const { port } = server.address() as AddressInfo;
      const post = async (body: string): Promise<number> => {
        const socket = connect(port, "127.0.0.1");
        const answer = text(socket);
        const before = process.cpuUsage();
        socket.write("POST /files?a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n");
        socket.write(`Connection: close\r\n\r\n${body}0\r\n\r\n`);
        expect(await answer).toContain("200 OK");
        const { user, system } = process.cpuUsage(before);
        return user + system;
      };
      const small = `${size}\r\nx\r\n`.repeat(2 ** 20);
      const whole = `${small.length.toString(16)}\r\n${small}\r\n`;
      const cost = { small: 0, whole: 0 };
      for (let n = 0; n < 3; n++) {
        cost.small += await post(small);
        cost.whole += await post(whole);
      }
      expect(cost.small).toBeLessThan(8 * cost.whole);
    },
  );

  test("empty lines, where heads could end, cost no more than others: in a chunked body, and before a request", async () => {
    const { port } = server.address() as AddressInfo;
    const post = async (part: string): Promise<number> => {
      const socket = connect(port, "127.0.0.1");
      const answer = text(socket);
      const data = part.repeat(2 ** 17);
      const before = process.cpuUsage();
      // As many as may come before a request.
      socket.write(part.startsWith("\r") ? data : "");
      socket.write("POST /files?a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
      socket.write(`${data.length.toString(16)}\r\n${data}\r\n`);
      // Trailers, and requests that must wait for the answer.
      socket.write("0\r\nA: b\r\n\r\nGET /held?1 HTTP/1.1\r\nHost: a\r\n\r\n");
      socket.write("GET /held?2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
      release.resolve();
      const answers = await answer;
      const { user, system } = process.cpuUsage(before);
      expect(answers.includes(`got ${data}`)).toBe(true);
      expect([...answers.matchAll(/\[(\d)/g)].map(([, n]) => n)).toEqual(["1", "2"]);
      return user + system;
    };
    const cost = { abcd: 0, "\r\n\r\n": 0 };
    for (let n = 0; n < 4; n++) {
      for (const part of ["abcd", "\r\n\r\n"] as const) cost[part] += await post(part);
    }
    expect(cost["\r\n\r\n"]).toBeLessThan(6 * cost.abcd);
  });
});

/** The address that a request is held to come from. */
async function addressOf(trusted: string[], socket: string | undefined, forwarded?: string) {
  const app = new Hono();
  const read = clientAddress(trusted);
  app.get("/", (c) => c.text(read(c)));
  const headers = forwarded === undefined ? {} : { "X-Forwarded-For": forwarded };
  const env = { incoming: { socket: { remoteAddress: socket } } };
  const response = await app.request("/", { headers }, env);
  return response.status === 200 ? response.text() : response.status;
}

const proxies = ["10.0.0.0/8", "fd00::1"];

test.each([
  ["the socket's, without a proxy", [], "192.0.2.1", undefined, "192.0.2.1"],
  ["the socket's, whatever it forges", [], "192.0.2.1", "198.51.100.1", "192.0.2.1"],
  [
    "the socket's, where that is no trusted proxy",
    proxies,
    "192.0.2.1",
    "198.51.100.1",
    "192.0.2.1",
  ],
  ["what a trusted proxy tells", proxies, "10.1.2.3", "198.51.100.1", "198.51.100.1"],
  ["what a trusted IPv6 proxy tells", proxies, "fd00::1", "2001:db8::7", "2001:db8::7"],
  [
    "the last that no trusted proxy added",
    proxies,
    "10.0.0.1",
    "6.6.6.6, 198.51.100.1, 10.9.9.9",
    "198.51.100.1",
  ],
  [
    "IPv4 without its IPv6 prefix",
    proxies,
    "::ffff:10.0.0.1",
    "::ffff:198.51.100.1",
    "198.51.100.1",
  ],
  ["the proxy's, where it tells nothing", proxies, "10.0.0.1", undefined, "10.0.0.1"],
  ["unknown, where the socket is gone", proxies, undefined, "198.51.100.1", "unknown"],
])("a client's address is %s", async (_title, trusted, socket, forwarded, address) => {
  expect(await addressOf(trusted, socket, forwarded)).toBe(address);
});

describe("an entry that is not an address ends the search at the proxy that wrote it", () => {
  test.each([
    "",
    "unknown",
    "999.1.1.1",
    "1.2.3",
    "[::1",
    "198.51.100.1:http",
    "a, b",
    "::g",
    "_id",
  ])("%j", async (forwarded) => {
    expect(await addressOf(proxies, "10.0.0.1", forwarded)).toBe("10.0.0.1");
    const forged = `198.51.100.1, ${forwarded}, 10.9.9.9`;
    expect(await addressOf(proxies, "10.0.0.1", forged)).toBe("10.9.9.9");
  });
});

test.each([
  ["198.51.100.1:4711", "198.51.100.1"],
  ["[2001:db8::7]", "2001:db8::7"],
  ["[2001:db8::7]:4711", "2001:db8::7"],
  ["[::ffff:198.51.100.1]:4711", "198.51.100.1"],
  ["6.6.6.6, 198.51.100.1:4711, 10.9.9.9:80", "198.51.100.1"],
])("of %j the client is %s", async (forwarded, address) => {
  expect(await addressOf(proxies, "10.0.0.1", forwarded)).toBe(address);
});
