import { createHash, randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Agent } from "undici";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { describeError } from "../../shared/log-line.ts";
import { listen, type Listening } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { protocolHeader, protocolVersion } from "../../shared/wire/leases.ts";
import { type Answer, type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { makeAuthority, startProxy, startTlsApi } from "../testing/tls-world.ts";
import { type Client, createClient, retryTimes } from "./client.ts";
import { createHttp, fixedToken, type Http, joinedToken, writeCredentials } from "./http.ts";
import { apiAddress, connectApi } from "./join.ts";

const never = new AbortController().signal;

describe("client", () => {
  const lease = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
  const started = { job_ref: "default@sha256:ab" };

  let api: FakeApi;
  let client: Client;

  beforeEach(async () => {
    api = await startFakeApi();
    const times = { retries: 3, minTimeout: 1, maxTimeout: 2 };
    const token = fixedToken("token-0123456789");
    client = createClient({ url: `${api.url}/`, token, dispatcher: new Agent() }, times);
  });
  const poll = () => client.poll({ wait_s: 0 } as never, never);
  afterEach(async () => {
    await client.close();
    await api[Symbol.asyncDispose]();
  });

  it("posts JSON with the agent's token", async () => {
    await client.started(lease, started, never);
    const { method, path, headers, json } = await api.request("/started");
    expect({ method, path, json }).toEqual({
      method: "POST",
      path: `/leases/${lease}/started`,
      json: started,
    });
    expect(headers).toMatchObject({
      authorization: "Bearer token-0123456789",
      "content-type": "application/json",
    });
  });

  describe("a token that was replaced while the agent runs", () => {
    const calls: [string, () => Promise<unknown>][] = [
      ["a post", () => client.started(lease, started, never)],
      ["a download", () => client.inputFile(lease, "ab".repeat(32), never)],
    ];
    it.each(calls)("is used for %s that was refused with the old one", async (_what, call) => {
      await client.close();
      let current = "token-that-is-old";
      const token = {
        current: () => current,
        isReplaced: (refused: string) => (current = "token-that-is-new") !== refused,
      };
      const times = { retries: 3, minTimeout: 1, maxTimeout: 2 };
      client = createClient({ url: api.url, token, dispatcher: new Agent() }, times);
      const path = `/leases/${lease}`;
      api.answer("/started", { status: 401 });
      api.answer("ab".repeat(32), { status: 401 }, { status: 200 });
      await call();
      expect(api.received.map(({ headers }) => headers.authorization)).toEqual([
        "Bearer token-that-is-old",
        "Bearer token-that-is-new",
      ]);
      expect(api.received.every((request) => request.path.startsWith(path))).toBe(true);
    });
  });

  it("a file that its own disk has lost is not asked for again", async () => {
    const file = { name: "x", path: "/nowhere/x", sizeBytes: 1, sha256: "ab".repeat(32) };
    await expect(client.upload(lease, file, never)).rejects.toMatchObject({ code: "ENOENT" });
  });

  describe("a transient failure", () => {
    it.each([
      ["500", { status: 500 }],
      ["503", { status: 503, headers: { "retry-after": "0" } }],
      ["429", { status: 429 }],
      ["a cut connection", "cut"],
      ["a proxy's page", { status: 200, body: "<html>" }],
      ["a proxy's redirect", { status: 302 }],
      ["a firewall's 403", { status: 403, body: "<html>", isProxy: true }],
      ["a proxy's 401 with its own problem body", { status: 401, isProxy: true }],
      ["a 401 without the API's explanation", { status: 401, body: "<html>" }],
    ] as const)("%s is repeated with the same body", async (_name, answer) => {
      api.answer("/started", answer, answer);
      await client.started(lease, started, never);
      expect(api.received.map(({ bytes }) => bytes.toString())).toEqual(
        Array(3).fill(JSON.stringify(started)),
      );
    });

    it("is given up after the last repetition, with the API's reason", async () => {
      const body = { title: "x", status: 503, detail: "the disk is full", correlation_id: "c" };
      const answer = { status: 503, body };
      api.answer("/started", answer, answer, answer, answer);
      await expect(client.started(lease, started, never)).rejects.toMatchObject({
        kind: "transient",
        message: `POST /leases/${lease}/started answered 503: the disk is full`,
      });
      expect(api.count("/started")).toBe(4);
    });

    it.each([
      ["3600", 30_000],
      ["2147484", 30_000],
      ["7", 7000],
      ["soon", 0],
    ])("with Retry-After: %s asks the agent to wait %d ms", async (value, retryAfterMs) => {
      api.answer("/poll", { status: 503, headers: { "retry-after": value } });
      await expect(poll()).rejects.toMatchObject({ kind: "transient", retryAfterMs });
    });

    it("is repeated by default for as long as the lease lasts", async () => {
      const token = fixedToken("token-0123456789");
      const times = { ...retryTimes, minTimeout: 1, maxTimeout: 1 };
      const patient = createClient({ url: api.url, token, dispatcher: new Agent() }, times);
      api.answer("/started", ...Array<"cut">(40).fill("cut"));
      await patient.started(lease, started, never);
      expect(api.count("/started")).toBe(41);
      await patient.close();
    });

    it("is not repeated once the signal is aborted", async () => {
      const gone = new AbortController();
      api.answer("/started", "silence");
      const call = client.started(lease, started, gone.signal);
      const { hungUp } = await api.request("/started");
      gone.abort(new Error("lost"));
      await expect(call).rejects.toThrow("lost");
      expect(api.count("/started")).toBe(1);
      await hungUp;
    });
  });

  it.each([
    [401, "unauthorized"],
    [403, "unauthorized"],
    [409, "lease_lost"],
    [400, "rejected"],
    [404, "rejected"],
    [413, "rejected"],
  ])("%d is %s and not repeated", async (status, kind) => {
    api.answer("/result", { status });
    await expect(client.release(lease, {} as never, never)).resolves.toBeUndefined();
    await expect(client.result(lease, {} as never, false, never)).rejects.toMatchObject({ kind });
    expect(api.count("/result")).toBe(1);
  });

  it.each<[string, Answer, string, string]>([
    [
      "of another shape",
      { status: 200, body: { jobs: "none" } },
      "transient",
      "POST /poll answered with an unknown shape",
    ],
    [
      "of a proxy, which it names,",
      { status: 403, body: "<html>", isProxy: true },
      "transient",
      "POST /poll answered 403, but not by an Airlock API: look for a proxy or a firewall in between",
    ],
    [
      "of another protocol version",
      { status: 200, headers: { [protocolHeader]: "1" } },
      "incompatible",
      `The API speaks version 1 of the agents' protocol, the agent version ${protocolVersion}: run the same version of Airlock on both.`,
    ],
  ])("a reply %s to a poll is not accepted", async (_what, answer, kind, message) => {
    api.answer("/poll", answer);
    await expect(poll()).rejects.toMatchObject({ kind, message });
    expect(api.received[0]?.headers[protocolHeader]).toBe(protocolVersion);
  });

  it("treats an API that is not there as transient", async () => {
    await api[Symbol.asyncDispose]();
    await expect(poll()).rejects.toMatchObject({
      kind: "transient",
    });
    api = await startFakeApi();
  });

  describe("an artifact", () => {
    async function spool(name: string, bytes: Buffer) {
      const path = join(tempFolder(), "0");
      await writeFile(path, bytes);
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      return { name, path, sizeBytes: bytes.length, sha256 };
    }

    it.each([
      ["empty", 0],
      ["larger than any buffer", 300_000],
    ])("that is %s is uploaded byte for byte, with size and hash", async (_name, size) => {
      const bytes = Buffer.alloc(size, "airlock");
      const artifact = await spool("sub folder/plot ü.png", bytes);
      await client.upload(lease, artifact, never);
      const put = api.received[0]!;
      expect(put.method).toBe("PUT");
      expect(put.path).toBe(`/leases/${lease}/artifacts/sub%20folder%2Fplot%20%C3%BC.png`);
      expect(put.bytes.equals(bytes)).toBe(true);
      expect(put.headers).toMatchObject({
        "content-length": String(size),
        "x-airlock-sha256": artifact.sha256,
      });
      expect(put.headers["transfer-encoding"]).toBeUndefined();
    });

    it("is sent again from its first byte", async () => {
      const bytes = Buffer.alloc(300_000, "airlock");
      api.answer("plot.png", "cut", { status: 503 });
      await client.upload(lease, await spool("plot.png", bytes), never);
      expect(api.received.map((put) => put.bytes.equals(bytes))).toEqual([true, true, true]);
    });
  });
});

describe("resumed", () => {
  const archive = randomBytes(3_000_000);
  const etag = '"an-archive"';

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
});

describe("connection", () => {
  const token = `ala_${"0".repeat(64)}`;

  let folder: string;
  let ours: ReturnType<typeof makeAuthority>;
  let other: ReturnType<typeof makeAuthority>;
  const ends: (() => unknown)[] = [];

  beforeAll(() => {
    folder = tempFolder();
    ours = makeAuthority(folder, "ours");
    other = makeAuthority(folder, "other");
  });
  afterEach(async () => {
    for (const end of ends.splice(0)) await end();
  });

  async function apiFor(host: string, expired = false) {
    const api = await startTlsApi(ours.sign(host, { expired }));
    ends.push(api.close);
    return api;
  }

  function httpTo(url: string, caFile: string | undefined, env: NodeJS.ProcessEnv = {}): Http {
    const address = apiAddress(url, { allow_plain_http: false, api_ca_file: caFile });
    const dispatcher = connectApi(address, env);
    const http = createHttp({ url, token: fixedToken(token), dispatcher });
    ends.push(http.close);
    return http;
  }

  const call = (body: string | Readable = "{}") => ({
    method: "POST" as const,
    path: "/renew",
    headers: {},
    body,
    reply: z.object({}),
    timeoutMs: 60_000,
    signal: never,
  });

  /** Why a call failed, in one line. */
  const failure = (http: Http): Promise<string> =>
    http.send(call()).then(() => "no failure", describeError);

  describe("the API's certificate", () => {
    it("is accepted if the authority in api_ca_file signed it for the API's name", async () => {
      const api = await apiFor("DNS:localhost");
      await httpTo(api.url, ours.file).send(call());
      expect(api.heard).toEqual([`/agent/v1/renew Bearer ${token} 2`]);
    });

    it.each([
      [
        "for another name",
        "DNS:other.example",
        false,
        () => ours.file,
        "api_url must name the API",
      ],
      ["of an unknown authority", "DNS:localhost", false, () => undefined, "api_ca_file must hold"],
      ["of another authority", "DNS:localhost", false, () => other.file, "api_ca_file must hold"],
      [
        "that has expired",
        "DNS:localhost",
        true,
        () => ours.file,
        "renew it there, unless this host's",
      ],
    ])(
      "%s is refused, with what to do, before anything is sent",
      async (_, host, expired, ca, words) => {
        const api = await apiFor(host, expired);
        const why = await failure(httpTo(api.url, ca()));
        expect(why).toContain(`${api.url} is not trusted: its certificate`);
        expect(why).toContain(words);
        expect(api.heard).toEqual([]);
      },
    );

    it("is checked whatever NODE_TLS_REJECT_UNAUTHORIZED says", async () => {
      const api = await apiFor("DNS:other.example");
      process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
      ends.push(() => delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"]);
      expect(await failure(httpTo(api.url, ours.file))).toContain("is not trusted");
      expect(api.heard).toEqual([]);
    });
  });

  describe("an HTTPS_PROXY", () => {
    it("sees only the API's name and port; requests and uploads go through", async () => {
      const api = await apiFor("DNS:localhost");
      const proxy = await startProxy("user:pass%word");
      ends.push(proxy.close);
      const env = { HTTPS_PROXY: `http://user:pass%25word@127.0.0.1:${proxy.port}` };
      const http = httpTo(api.url, ours.file, env);
      await http.send(call());
      await http.send(call(Readable.from([Buffer.alloc(300_000, "a")])));
      expect(api.heard.map((line) => line.split(" ").at(-1))).toEqual(["2", "300000"]);
      expect(new Set(proxy.seen)).toEqual(new Set([`CONNECT ${new URL(api.url).host}`]));
    });

    it("that refuses or is gone is reported without its password", async () => {
      const api = await apiFor("DNS:localhost");
      const proxy = await startProxy("user:right");
      ends.push(proxy.close);
      for (const port of [proxy.port, 1]) {
        const env = { HTTPS_PROXY: `http://user:s3cret@127.0.0.1:${port}` };
        const why = await failure(httpTo(api.url, ours.file, env));
        expect(why).toContain(`no answer from ${api.url}`);
        expect(why).not.toContain("s3cret");
      }
      expect(api.heard).toEqual([]);
    });

    it("is not asked for a host in NO_PROXY", async () => {
      const api = await apiFor("DNS:localhost");
      const env = { HTTPS_PROXY: "http://127.0.0.1:1", NO_PROXY: "example.com,localhost" };
      await httpTo(api.url, ours.file, env).send(call());
      expect(api.heard).toHaveLength(1);
    });

    it.each(["s3cret", "ftp://u:s3cret@proxy.example"])(
      "that is not an address is refused: %s",
      (proxy) => {
        const open = () =>
          connectApi({ url: "https://a.example", ca: undefined }, { HTTPS_PROXY: proxy });
        expect(open).toThrowError(
          "HTTPS_PROXY must be an address such as http://proxy.example:3128",
        );
      },
    );
  });

  describe("an address", () => {
    const plain = { allow_plain_http: false, api_ca_file: undefined };

    it.each(["http://127.0.0.1:8080", "http://localhost", "http://[::1]:1", "https://a.example"])(
      "%s is accepted",
      (url) => {
        expect(apiAddress(url, plain)).toEqual({ url, ca: undefined });
      },
    );

    it.each([
      "http://a.example",
      "http://127.0.0.1.example",
      "http://10.0.0.1",
      "http://localhost.example",
    ])("%s is refused unless allow_plain_http says otherwise", (url) => {
      expect(() => apiAddress(url, plain)).toThrowError(/^api_url = ".*clear; use https:\/\/, or/);
      expect(apiAddress(url, { ...plain, allow_plain_http: true })).toMatchObject({ url });
    });

    it("with an api_ca_file that holds no certificate is refused", () => {
      const empty = join(folder, "empty.pem");
      writeFileSync(empty, "");
      for (const api_ca_file of [empty, join(folder, "missing.pem")]) {
        const open = () => apiAddress("https://a.example", { ...plain, api_ca_file });
        expect(open).toThrowError(/^api_ca_file = ".*\.pem": cannot read a certificate/);
      }
    });
  });
});

describe("token source", () => {
  let folder: string;
  beforeEach(async () => {
    folder = tempFolder();
  });

  const [old, next] = [`ala_${"0".repeat(64)}`, `ala_${"1".repeat(64)}`] as const;
  const write = (token: string): void =>
    writeCredentials(folder, { api_url: "http://127.0.0.1:1", name: "host", token }, "joined");

  it("a refused token is replaced by the one that rotate has written", () => {
    write(old);
    const token = joinedToken(folder, old);
    expect(token.isReplaced(old)).toBe(false);
    write(next);
    expect(token.current()).toBe(old);
    expect(token.isReplaced(old)).toBe(true);
    expect(token.current()).toBe(next);
  });

  it("a token whose file is gone stays the one in use", () => {
    const token = joinedToken(folder, old);
    expect(token.isReplaced(old)).toBe(false);
    expect(token.current()).toBe(old);
  });
});
