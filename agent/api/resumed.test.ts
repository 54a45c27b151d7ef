import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { Agent } from "undici";
import { afterEach, beforeEach, expect, it } from "vitest";
import { listen, type Listening } from "../../shared/testing/listen.ts";
import { type Client, createClient } from "./client.ts";
import { fixedToken } from "./token-source.ts";

const archive = randomBytes(3_000_000);
const etag = '"an-archive"';
const never = new AbortController().signal;

let server: Listening;
let client: Client;
let asked: (string | undefined)[];
/** Answers the n-th request, from 0, for the bytes from `offset` on. */
let serve: (answer: ServerResponse, offset: number, n: number) => void;
let cut: () => void;

/** Some of them, and no more until `cut` breaks it off. */
function begin(answer: ServerResponse, offset: number): void {
  cut = () => answer.destroy();
  answer.write(archive.subarray(offset, offset + 1_000_000));
}

function handle({ headers }: IncomingMessage, answer: ServerResponse): void {
  asked.push(headers.range);
  const offset = Number(/^bytes=(\d+)-$/.exec(headers.range ?? "bytes=0-")![1]);
  answer.setHeader("etag", etag).setHeader("content-length", archive.length - offset);
  if (headers.range !== undefined) {
    expect(headers["if-range"]).toBe(etag);
    answer.statusCode = 206;
  }
  serve(answer, offset, asked.length - 1);
}

beforeEach(async () => {
  asked = [];
  server = await listen(createServer(handle));
  const times = { retries: 2, minTimeout: 1, maxTimeout: 2 };
  const token = fixedToken("token-0123456789");
  client = createClient({ url: server.url, token, dispatcher: new Agent() }, times);
});
afterEach(async () => {
  await client.close();
  await server[Symbol.asyncDispose]();
});

/** Reads the archive, and cuts each answer once something of it has come. */
async function read(): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of await client.imageArchive("sha256:a", never)) {
    pieces.push(piece as Buffer);
    cut();
  }
  return Buffer.concat(pieces);
}

it("continues where it was cut off, any number of times", async () => {
  serve = (answer, offset, n) => {
    if (n < 2) return begin(answer, offset);
    cut = () => {};
    answer.end(archive.subarray(offset));
  };
  expect((await read()).equals(archive)).toBe(true);
  expect(asked).toEqual([undefined, expect.any(String), expect.any(String)]);
});

it("waits for an API that is away in the meantime", async () => {
  serve = (answer, offset, n) => {
    if (n === 0) return begin(answer, offset);
    cut = () => {};
    if (n === 1) answer.destroy();
    else answer.end(archive.subarray(offset));
  };
  expect((await read()).equals(archive)).toBe(true);
  expect(asked).toHaveLength(3);
});

it.each<[string, (answer: ServerResponse) => void, number]>([
  ["another archive", (answer) => void (answer.statusCode = 200), 2],
  ["nothing, every time", () => {}, 3],
])("is broken off where the API has %s", async (_what, begins, requests) => {
  serve = (answer, offset, n) => {
    if (n === 0) return begin(answer, offset);
    begins(answer);
    answer.flushHeaders();
    setImmediate(() => answer.destroy());
  };
  await expect(read()).rejects.toBeInstanceOf(Error);
  expect(asked).toHaveLength(requests);
});

it("hangs up as soon as nobody reads", async () => {
  const hungUp = Promise.withResolvers<void>();
  serve = (answer, offset) => {
    answer.once("close", hungUp.resolve);
    begin(answer, offset);
  };
  const body = await client.imageArchive("sha256:a", never);
  body.destroy();
  await hungUp.promise;
  expect(asked).toHaveLength(1);
});
