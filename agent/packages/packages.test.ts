import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { mkdir, readdir, readFile, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request } from "node:http";
import { connect, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { getLogger } from "@logtape/logtape";
import {
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
  test,
  vi,
} from "vitest";
import { listen, type Listening } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { JobRefusal } from "../host/policy.ts";
import { loadModules, programs, sources } from "../python/program.ts";
import { frameDecoder } from "../sandbox/frames.ts";
import { openTunnel } from "../sandbox/install-packages.ts";
import { pipConfig } from "../testing/fakes.ts";
import { openPackageCache, type PackageCache } from "./cache.ts";
import {
  createPackageProxy,
  filesUrl,
  type PipConfig,
  type Reach,
  readPackageSource,
  readRuntimeSource,
} from "./proxy.ts";

describe("proxy", () => {
  const servers: Listening[] = [];
  async function portOf(server: Server): Promise<number> {
    const listening = await listen(server);
    servers.push(listening);
    return listening.port;
  }

  /** Says what it was asked, and how often. */
  async function startOrigin() {
    const asked: string[] = [];
    const server = createServer((incoming, response) => {
      asked.push(`${incoming.method} ${incoming.url} ${incoming.headers.host}`);
      response.writeHead(200, { "x-origin": "yes" });
      incoming.pipe(response);
    });
    return { server, asked, place: `127.0.0.1:${await portOf(server)}` };
  }

  let index: Awaited<ReturnType<typeof startOrigin>>;
  let other: Awaited<ReturnType<typeof startOrigin>>;
  beforeEach(async () => {
    index = await startOrigin();
    other = await startOrigin();
  });
  afterEach(() => Promise.all(servers.splice(0).map((server) => server[Symbol.asyncDispose]())));

  /** The proxy on a port; returns how to send it a request for a URL, and how to ask for a tunnel. */
  async function startProxy(reach: Partial<Reach> = {}) {
    const serve = createPackageProxy(
      { hosts: [index.place], internet: true, proxy: null, files: [], ...reach },
      (words) => problems.push(words),
    );
    const problems: string[] = [];
    const listener = createTcpServer((socket) => serve(socket.on("error", () => {})));
    const port = await portOf(listener);

    async function get(
      url: string,
      body = "",
      headers = {},
    ): Promise<{ status: number; words: string; body: string }> {
      const to = { host: "127.0.0.1", port, path: url, method: "POST", agent: false } as const;
      const sent = request({ ...to, headers });
      sent.end(body);
      const [answer] = (await once(sent, "response")) as [IncomingMessage];
      const { statusCode, statusMessage } = answer;
      return { status: statusCode!, words: statusMessage!, body: await text(answer) };
    }
    async function tunnel(authority: string): Promise<string> {
      const socket = connect(port, "127.0.0.1");
      socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
      const [head] = (await once(socket, "data")) as [Buffer];
      if (head.toString().startsWith("HTTP/1.1 200")) {
        socket.write("GET /inner HTTP/1.1\r\nHost: inner\r\nConnection: close\r\n\r\n");
        return text(socket);
      }
      socket.destroy();
      return head.toString();
    }
    return { port, get, tunnel, problems };
  }

  it("passes a request on to the index, and the answer back", async () => {
    const { get } = await startProxy();
    const long = "x".repeat(3_000_000);
    const answer = await get(`http://${index.place}/simple/a/?q=1`, long);
    expect(answer).toMatchObject({ status: 200, body: long });
    expect(index.asked).toEqual([`POST /simple/a/?q=1 ${index.place}`]);
  });

  it("passes no header on that Connection names", async () => {
    const { get } = await startProxy();
    const told = vi.fn<(headers: IncomingMessage["headers"]) => void>();
    index.server.on("request", ({ headers }: IncomingMessage) => told(headers));
    await get(`http://${index.place}/`, "", {
      connection: "close, x-hop",
      "x-hop": "1",
      "x-end": "2",
    });
    expect(told.mock.calls[0]?.[0]).toMatchObject({ "x-end": "2" });
    expect(told.mock.calls[0]?.[0]).not.toHaveProperty("x-hop");
  });

  it("sends requests to Debian's host to the configured mirror, and no others", async () => {
    const { get } = await startProxy({ aptMirror: `http://${index.place}/mirror` });
    expect((await get("http://deb.debian.org/debian/dists/x")).status).toBe(200);
    expect(index.asked).toEqual([`POST /mirror/debian/dists/x ${index.place}`]);
    expect((await get("http://deb.debian.org:8080/debian")).status).toBe(403);
  });

  it("passes a tunnel on to the index", async () => {
    const { tunnel } = await startProxy();
    expect(await tunnel(index.place)).toContain("x-origin: yes");
    expect(index.asked).toEqual(["GET /inner inner"]);
  });

  describe("refuses", () => {
    it.each([
      ["another port of the index's host", () => other.place],
      ["its name instead of its address", () => index.place.replace("127.0.0.1", "localhost")],
      ["a loopback address on an open port", () => "127.0.0.1:80"],
      ["a name of this host", () => "localhost:443"],
      ["an address as a number", () => "2130706433:80"],
      ["an address in hexadecimal", () => "0x7f.1:80"],
      ["the metadata address", () => "169.254.169.254:80"],
      ["the metadata address mapped to IPv6", () => "[::ffff:169.254.169.254]:80"],
      ["a private address", () => "10.0.0.1:443"],
      ["loopback in IPv6", () => "[::1]:80"],
      ["the unspecified address", () => "0.0.0.0:80"],
      ["a port that is not a web port", () => "1.1.1.1:22"],
    ])("%s", async (_, place) => {
      const { get, tunnel, problems } = await startProxy();
      expect(await get(`http://${place()}/`)).toMatchObject({ status: 403 });
      expect(await tunnel(place())).toMatch(
        /^HTTP\/1.1 403 .*(may not be reached|has a private address)/,
      );
      expect([...index.asked, ...other.asked]).toEqual([]);
      expect(problems).toHaveLength(2);
    });

    it.each(["/simple/", "https://1.1.1.1/", "ftp://1.1.1.1/", "*"])("%s", async (url) => {
      const { get } = await startProxy();
      expect((await get(url)).status).toBe(403);
    });

    it.each(["", "x", "1.1.1.1", "1.1.1.1:443:22", "1.1.1.1:443/x:22"])(
      "a tunnel to %j",
      async (authority) => {
        const { tunnel } = await startProxy();
        expect(await tunnel(authority)).toMatch(/^HTTP\/1.1 (4|5)/);
      },
    );

    it("every public host if no index is configured", async () => {
      const { get, tunnel } = await startProxy({ hosts: [], internet: false });
      expect((await get("http://1.1.1.1/")).status).toBe(403);
      expect(await tunnel("1.1.1.1:443")).toMatch(/^HTTP\/1.1 403/);
    });
  });

  it("reaches the hosts that the operator names, whatever their address", async () => {
    const { get, tunnel } = await startProxy({ hosts: [index.place, other.place] });
    expect(await get(`http://${other.place}/files/a.whl`)).toMatchObject({ status: 200 });
    expect(await tunnel(other.place)).toContain("x-origin: yes");
    expect(other.asked).toEqual([`POST /files/a.whl ${other.place}`, "GET /inner inner"]);
  });

  describe("behind an HTTP proxy", () => {
    /** A proxy that says what it was asked, and answers from the index whatever that was. */
    async function startUpstream(refusal?: string) {
      const asked: string[] = [];
      const server = createServer((incoming, response) => {
        asked.push(`${incoming.method} ${incoming.url} ${incoming.headers["proxy-authorization"]}`);
        response.end("from the proxy");
      });
      server.on("connect", (incoming: IncomingMessage, client: Duplex) => {
        asked.push(`CONNECT ${incoming.url} ${incoming.headers["proxy-authorization"]}`);
        if (refusal !== undefined) return client.end(`HTTP/1.1 ${refusal}\r\n\r\n`);
        client.write("HTTP/1.1 200 OK\r\n\r\n");
        const [host = "", port] = index.place.split(":");
        client.pipe(connect(Number(port), host)).pipe(client);
      });
      const port = await portOf(server);
      return { asked, proxy: new URL(`http://robot:se%40cret@127.0.0.1:${port}`) };
    }
    const credentials = `Basic ${Buffer.from("robot:se@cret").toString("base64")}`;
    // A name of nobody (RFC 6761): the proxy alone knows it.
    const hosts = ["packages.invalid:443", "packages.invalid:80"];

    it("public hosts are reached through it, by name", async () => {
      const { asked, proxy } = await startUpstream();
      const { get, tunnel } = await startProxy({ hosts, proxy });
      expect(await tunnel("packages.invalid:443")).toContain("x-origin: yes");
      expect(await get("http://packages.invalid/simple/a/")).toMatchObject({
        status: 200,
        body: "from the proxy",
      });
      expect(asked).toEqual([
        `CONNECT packages.invalid:443 ${credentials}`,
        `POST http://packages.invalid/simple/a/ ${credentials}`,
      ]);
    });

    it("what a host says with the proxy's own answer arrives", async () => {
      const server = createServer();
      server.on("connect", (_incoming: IncomingMessage, client: Duplex) => {
        client.end("HTTP/1.1 200 OK\r\n\r\nspeaks first");
      });
      const port = await portOf(server);
      const its = await startProxy({ hosts, proxy: new URL(`http://127.0.0.1:${port}`) });
      const socket = connect(its.port, "127.0.0.1");
      socket.write("CONNECT packages.invalid:443 HTTP/1.1\r\nHost: packages.invalid:443\r\n\r\n");
      expect(await text(socket)).toMatch(/^HTTP\/1.1 200 [^]*speaks first$/);
    });

    it("a named host with a private address is reached without it", async () => {
      const { asked, proxy } = await startUpstream();
      const { get } = await startProxy({ hosts: [index.place], proxy });
      expect(await get(`http://${index.place}/simple/a/`)).toMatchObject({ status: 200 });
      expect([index.asked.length, asked]).toEqual([1, []]);
    });

    it("is asked for nothing else, because it may reach what the code must not", async () => {
      const { asked, proxy } = await startUpstream();
      const { get, tunnel } = await startProxy({ hosts, proxy });
      for (const place of ["1.1.1.1:443", "intranet.invalid:443", "packages.invalid:22"]) {
        expect(await tunnel(place)).toMatch(/^HTTP\/1.1 403 .*may not be reached/);
        expect((await get(`http://${place}/`)).status).toBe(403);
      }
      expect(asked).toEqual([]);
    });

    it("its refusal is reported", async () => {
      const { proxy } = await startUpstream("407 Who are you");
      const { tunnel, problems } = await startProxy({ hosts, proxy });
      expect(await tunnel("packages.invalid:443")).toMatch(/^HTTP\/1.1 502 .*407 Who are you/);
      expect(problems.join()).not.toContain("se@cret");
    });
  });

  it("says what went wrong if an index does not answer", async () => {
    const { get, tunnel } = await startProxy();
    await servers.shift()?.[Symbol.asyncDispose]();
    expect(await get(`http://${index.place}/`)).toMatchObject({ status: 502 });
    expect(await tunnel(index.place)).toContain("ECONNREFUSED");
  });

  it("serves the agent's own files, and no others", async () => {
    const folder = tempFolder();
    const path = join(folder, "a-1.0+local-py3-none-any.whl");
    writeFileSync(path, "wheel");
    const file = { name: "a-1.0+local-py3-none-any.whl", path, sizeBytes: 5, changedMs: 0 };
    const { get } = await startProxy({ hosts: [], internet: false, files: [file] });
    const { body } = await get(filesUrl);
    const link = /href="([^"]+)"/.exec(body)?.[1] ?? "";
    expect((await get(new URL(link, filesUrl).href)).body).toBe("wheel");
    expect((await get(`${filesUrl}../package.json`)).status).toBe(404);
  });

  /** Starts the agent's proxy, and the other end in a process of its own, as in PID 1. Returns the port for pip. */
  async function openBoth(place: string): Promise<number> {
    const probe = `
from build import exchange
from link import Inbox, Outbox
from packages import Tunnel
inbox, outbox = Inbox(0), Outbox(1)
tunnel = Tunnel(outbox)
outbox.put(b"P", b"%d" % tunnel.port)
while True:
    exchange(inbox, outbox, tunnel)`;
    const program = loadModules({ ...sources(programs.installer), probe });
    const other = spawn("python3", ["-I", "-S", "-c", program], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const reach = { hosts: [place], internet: false, proxy: null, files: [] };
    const serve = createPackageProxy(reach, () => {});
    const tunnel = openTunnel((frame) => void other.stdin.write(frame), serve);
    onTestFinished(() => {
      tunnel.close();
      other.kill("SIGKILL");
    });
    const decode = frameDecoder();
    const { promise, resolve } = Promise.withResolvers<number>();
    other.stdout.on("data", (bytes: Buffer) => {
      for (const frame of decode(bytes)) {
        if (frame.type === "P") resolve(Number(frame.payload.toString()));
        else tunnel.take(frame);
      }
    });
    return promise;
  }

  it("takes a frame as one whose parts come during two commands of a build", async () => {
    const probe = `
from build import run_steps
from link import Outbox
import sys
def step(number, command):
    argv = ["sh", "-c", command]
    return {"kind": "run", "number": number, "head": "", "argv": argv, "args": {}, "cwd": "/", "user": ""}
steps = [step(1, "sleep 0.3"), step(2, "sleep 0.3")]
run_steps({"job_type": "x", "steps": steps, "env": {}}, Outbox(1))`;
    const program = loadModules({ ...sources(programs.installer), probe });
    const installer = spawn("python3", ["-I", "-S", "-c", program], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const ended = once(installer, "exit");
    // Of a connection that has ended. Its second half, taken for the head of a frame, is of one that is too long.
    const frame = Buffer.concat([Buffer.from("d\0\0\0\x0c"), Buffer.alloc(12, 0xff)]);
    const decode = frameDecoder();
    for await (const bytes of installer.stdout as AsyncIterable<Buffer>) {
      for (const { payload } of decode(bytes)) {
        const isFirst = payload.includes("1");
        installer.stdin.write(isFirst ? frame.subarray(0, 10) : frame.subarray(10));
      }
    }
    expect(await ended).toEqual([0, null]);
  });

  describe("all bytes arrive, whoever closes first", () => {
    const answer = Buffer.alloc(700_000, "answer ");
    /** What the server does with a connection, and what the client does when it is connected. */
    const ways: [string, (served: Socket) => void, (client: Socket) => void][] = [
      [
        "the server",
        (served) => served.once("data", () => served.end(answer)),
        (client) => client.write("?"),
      ],
      [
        "the server, which hears no more",
        (served) => served.once("data", () => served.end(answer, () => served.destroySoon())),
        (client) => client.write("?"),
      ],
      [
        "the client",
        (served) => served.resume().once("end", () => served.end(answer)),
        (client) => client.end("?"),
      ],
    ];
    it.each(ways)("%s", async (_, onServed, onConnected) => {
      const server = createTcpServer({ allowHalfOpen: true }, onServed);
      const place = `127.0.0.1:${await portOf(server)}`;
      const port = await openBoth(place);
      const lengths = Array.from({ length: 40 }, async () => {
        const client = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
        client.write(`CONNECT ${place} HTTP/1.1\r\nHost: ${place}\r\n\r\n`);
        const [head] = (await once(client, "data")) as [Buffer];
        expect(head.toString()).toMatch(/^HTTP\/1.1 200 /);
        onConnected(client);
        const heard = await buffer(client);
        client.end();
        return head.toString("latin1").split("\r\n\r\n")[1]!.length + heard.length;
      });
      expect(await Promise.all(lengths)).toEqual(lengths.map(() => answer.length));
    });
  });

  it("a refused tunnel is given back: any number may be refused", async () => {
    const port = await openBoth(index.place);
    for (let n = 0; n < 70; n++) {
      const client = connect({ port, host: "127.0.0.1" });
      client.write("CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 10.0.0.1:443\r\n\r\n");
      expect(await text(client)).toMatch(/^HTTP\/1.1 403 /);
    }
  });
});

describe("source", () => {
  let folder: string;
  beforeAll(() => {
    folder = tempFolder();
    for (const name of ["b-1-py3-none-any.whl", "a-1.tar.gz", "c-1.zip", "notes.txt"]) {
      writeFileSync(join(folder, name), name);
    }
    mkdirSync(join(folder, "more"));
    writeFileSync(join(folder, "ca.crt"), "certificate");
  });

  const read = (config: Partial<PipConfig>) => readPackageSource(pipConfig(config));

  test("without configuration, pip asks PyPI", async () => {
    const { files, env, hosts } = await read({});
    expect({ files, hosts }).toEqual({
      files: [],
      hosts: { hosts: [], internet: true, proxy: null },
    });
    expect(Object.keys(env)).not.toContain("PIP_INDEX_URL");
    expect(env).toMatchObject({ PIP_BREAK_SYSTEM_PACKAGES: "1", PIP_NO_INPUT: "1" });
  });

  test("the packages of a folder are sent along, and then no index is used", async () => {
    const { files, env, hosts } = await read({ findLinks: folder });
    expect(files).toEqual(
      ["a-1.tar.gz", "b-1-py3-none-any.whl", "c-1.zip"].map((name) => ({
        name: `packages/${name}`,
        path: join(folder, name),
        sizeBytes: name.length,
        changedMs: expect.any(Number) as number,
      })),
    );
    expect(hosts).toMatchObject({ hosts: [], internet: false });
    expect(env).toMatchObject({
      PIP_FIND_LINKS: "/tmp/airlock-build/packages",
      PIP_NO_INDEX: "1",
    });
  });

  test("an index is used beside a folder if both are configured", async () => {
    const indexUrl = "https://me:secret@packages.example/simple";
    const { env, hosts } = await read({ indexUrl, findLinks: folder });
    expect(hosts.hosts).toEqual(["packages.example:443"]);
    expect(env).toMatchObject({ PIP_INDEX_URL: indexUrl });
    expect(Object.keys(env)).not.toContain("PIP_NO_INDEX");
    expect(Object.keys(env)).not.toContain("PIP_TRUSTED_HOST");
  });

  test("an index without TLS is trusted because the operator configured it", async () => {
    const { env } = await read({ indexUrl: "http://packages.example:8000/simple" });
    expect(env["PIP_TRUSTED_HOST"]).toBe("packages.example:8000");
  });

  test("the certificates are sent along", async () => {
    const { files, env } = await read({ caFile: join(folder, "ca.crt") });
    const changedMs = expect.any(Number) as number;
    expect(files).toEqual([
      { name: "ca.pem", path: join(folder, "ca.crt"), sizeBytes: 11, changedMs },
    ]);
    const variables = Object.keys(env).filter((name) => env[name] === "/tmp/airlock-build/ca.pem");
    expect(variables.sort()).toEqual([
      "CURL_CA_BUNDLE",
      "NODE_EXTRA_CA_CERTS",
      "PIP_CERT",
      "SSL_CERT_FILE",
      "npm_config_cafile",
    ]);
  });

  test("a registry of npm's and a mirror of Debian's packages may be reached, and npm hears of its own", async () => {
    const npmRegistry = "https://npm.example/all/";
    const { env, hosts } = await read({ npmRegistry, aptMirror: "http://10.0.0.1:8081/x" });
    expect(hosts).toMatchObject({
      hosts: ["npm.example:443", "10.0.0.1:8081"],
      aptMirror: "http://10.0.0.1:8081/x",
    });
    expect(env).toMatchObject({ npm_config_registry: npmRegistry });
    expect(Object.keys(env).filter((name) => name.startsWith("npm"))).toHaveLength(1);
  });

  test.each([
    ["me:s%40cret", "_auth", "bWU6c0BjcmV0"],
    ["npm_token", "_authToken", "npm_token"],
  ])("npm gets %s of its registry's address apart from the address", async (user, key, value) => {
    const { env, hosts } = await read({ npmRegistry: `https://${user}@npm.example:8443/all/` });
    expect(hosts).toMatchObject({ hosts: ["npm.example:8443"] });
    expect(env).toMatchObject({
      npm_config_registry: "https://npm.example:8443/all/",
      [`npm_config_//npm.example:8443/:${key}`]: value,
    });
  });

  test("through a proxy, builds reach the usual hosts of every kind of package", async () => {
    const { hosts } = await read({ proxyUrl: "http://proxy.example:3128" });
    expect(hosts.hosts).toEqual(
      expect.arrayContaining(["pypi.org:443", "registry.npmjs.org:443", "deb.debian.org:80"]),
    );
  });

  test.each([
    ["pip_find_links", { findLinks: "/nowhere" }],
    ["pip_ca_file", { caFile: "/nowhere" }],
  ])("the error names %s that cannot be read", async (key, config) => {
    const failure = read(config);
    await expect(failure).rejects.toBeInstanceOf(JobRefusal);
    await expect(failure).rejects.toMatchObject({
      type: "config_error",
      message: expect.stringMatching(
        `${key} of the agent cannot be read: /nowhere: .*ENOENT`,
      ) as string,
    });
  });
});

describe("runtime source", () => {
  const read = async (config: Partial<PipConfig>) => {
    const { reach } = await readRuntimeSource(pipConfig(config));
    return reach;
  };
  const proxyUrl = "http://proxy.example:3128";

  test.each<[string, Partial<PipConfig>, readonly string[]]>([
    ["nothing", {}, []],
    ["the index", { indexUrl: "https://a.example/simple" }, ["a.example:443"]],
    ["its port", { indexUrl: "http://127.0.0.1:3141/simple" }, ["127.0.0.1:3141"]],
    ["further hosts", { hosts: ["b.example:8081", "c"] }, ["b.example:8081", "c:80", "c:443"]],
    ["PyPI's hosts behind a proxy", { proxyUrl }, ["pypi.org:443", "files.pythonhosted.org:443"]],
    ["the index behind a proxy", { proxyUrl, indexUrl: "https://a.example" }, ["a.example:443"]],
    ["no index for files alone", { proxyUrl, findLinks: "/" }, []],
  ])("may be reached by name: %s", async (_what, config, hosts) => {
    expect(await read(config)).toMatchObject({ hosts });
  });
});

describe("cache", async () => {
  let root: string;
  let folder: string;
  let cache: PackageCache;
  const open = (maxBytes: number) =>
    openPackageCache(folder, maxBytes, getLogger(["airlock", "test"]));
  beforeEach(async () => {
    root = tempFolder();
    folder = join(root, "a/b");
    cache = await open(10_000);
  });

  /** The owner of a set is its first letter. */
  const key = (name: string): string => name.slice(0, 1).repeat(8) + name.slice(-1).repeat(56);
  const file = (name: string): string => join(folder, `${key(name)}.packages`);

  async function keep(name: string, ...pieces: string[]): Promise<void> {
    await using writer = await cache.begin(key(name));
    for (const piece of pieces) await writer.write(Buffer.from(piece));
    await writer.commit();
  }
  async function find(name: string): Promise<string | null> {
    await using found = await cache.find(key(name));
    return found && (await buffer(found.pieces())).toString();
  }
  const names = async () => (await readdir(folder)).map((name) => name.slice(0, 1)).sort();

  test("a stored set is found by its key only", async () => {
    expect(await find("a")).toBeNull();
    await keep("a", "one ", "two");
    expect(await find("a")).toBe("one two");
    expect(await find("b")).toBeNull();
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    expect((await stat(file("a"))).mode & 0o777).toBe(0o600);
  });

  test("a set is replaced as a whole, and readers of the old one keep it", async () => {
    await keep("a", "old");
    await using found = await cache.find(key("a"));
    await keep("a", "new and longer");
    expect((await buffer(found!.pieces())).toString()).toBe("old");
    expect(await find("a")).toBe("new and longer");
  });

  test("a writer may start again, and so may a reader", async () => {
    {
      await using writer = await cache.begin(key("a"));
      await writer.write(Buffer.from("half of a long one"));
      await writer.restart();
      await writer.write(Buffer.from("whole"));
      await writer.commit();
    }
    await using found = await cache.find(key("a"));
    for await (const piece of found!.pieces()) expect(Buffer.from(piece).toString()).toBe("whole");
    expect((await buffer(found!.pieces())).toString()).toBe("whole");
  });

  test("a set that was not finished is neither kept nor left behind", async () => {
    {
      await using writer = await cache.begin(key("a"));
      await writer.write(Buffer.from("half"));
    }
    expect(await find("a")).toBeNull();
    expect(await readdir(folder)).toEqual([]);
  });

  test.each<[string, () => Promise<unknown>]>([
    ["cut off", async () => truncate(file("a"), (await stat(file("a"))).size - 1)],
    ["shorter than a digest", () => truncate(file("a"), 5)],
    ["empty", () => truncate(file("a"), 0)],
    [
      "changed by one bit",
      async () => {
        const bytes = await readFile(file("a"));
        bytes[1]! ^= 1;
        await writeFile(file("a"), bytes);
      },
    ],
  ])("a file that is %s counts as none, and is removed", async (_, damage) => {
    await keep("a", "precious");
    await damage();
    expect(await find("a")).toBeNull();
    expect(await readdir(folder)).toEqual([]);
    await keep("a", "again");
    expect(await find("a")).toBe("again");
  });

  test("the least recently used set is removed first when room is needed", async () => {
    const long = "x".repeat(4000);
    for (const letter of ["a", "b"]) {
      await keep(letter, long);
      await utimes(file(letter), 1000, letter === "a" ? 1000 : 2000);
    }
    expect(await find("a")).toBe(long);
    await keep("c", long);
    expect(await names()).toEqual(["a", "c"]);
  });

  test("room comes from the tenant that holds most, not from the one that used its set longest ago", async () => {
    const uses = { a1: 4000, b1: 3000, b2: 3000 };
    for (const [n, [name, bytes]] of Object.entries(uses).entries()) {
      await keep(name, "x".repeat(bytes));
      await utimes(file(name), n, n);
    }
    await keep("b3", "x".repeat(100));
    expect(await names()).toEqual(["a", "b", "b"]);
    expect(await find("b1")).toBeNull();
  });

  test("a set larger than the whole cache is not kept and displaces nothing", async () => {
    await keep("a", "small");
    await keep(
      "b",
      ..."x"
        .repeat(11)
        .split("")
        .map((x) => x.repeat(1000)),
    );
    expect(await names()).toEqual(["a"]);
  });

  test("what a dead writer left is removed after an hour; other files never are", async () => {
    for (const name of ["old.part", "new.part", "mine.txt"])
      await writeFile(join(folder, name), "x");
    for (const name of ["old.part", "mine.txt"]) await utimes(join(folder, name), 1000, 1000);
    await keep("a", "x");
    expect(await names()).toEqual(["a", "m", "n"]);
  });

  test("jobs get their packages even if the cache cannot be written", async () => {
    await rm(folder, { recursive: true });
    await keep("a", "one");
    expect(await find("a")).toBeNull();
  });

  test("a file that cannot be read counts as missing", async () => {
    // A folder opens like a file, and fails at the first read.
    await mkdir(file("a"));
    expect(await find("a")).toBeNull();
  });
});
