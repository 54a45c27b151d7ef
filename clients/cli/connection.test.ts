import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { listen } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import {
  makeFolder,
  patientFetch,
  proxyOf,
  readSettings,
  settingsFile,
  useProxies,
  writeSettings,
} from "./connection.ts";
import { NoServiceError, UsageError } from "./exit.ts";
import type { Terminal } from "./terminal.ts";

describe("settings", () => {
  let folder: string;
  beforeEach(() => {
    folder = tempFolder();
  });

  const env = (more: Record<string, string> = {}) => ({ XDG_CONFIG_HOME: folder, ...more });
  const stored = { url: "https://airlock.example", key: "stored-key" };

  test("by default, the service is on this machine and needs no key", () => {
    expect(readSettings({}, env())).toEqual({ url: "http://127.0.0.1:8080", key: undefined });
  });

  test("a flag overrides the environment, which overrides the file", () => {
    writeSettings(stored, env());
    const set = env({ AIRLOCK_URL: "https://airlock.example/env", AIRLOCK_KEY: "env-key" });
    expect(readSettings({}, env())).toEqual(stored);
    expect(readSettings({}, set)).toEqual({ url: "https://airlock.example/env", key: "env-key" });
    expect(readSettings({ url: "http://a:1/", key: "flag-key" }, set)).toEqual({
      url: "http://a:1",
      key: "flag-key",
    });
  });

  test("a stored key is not sent to another service", () => {
    writeSettings(stored, env());
    expect(readSettings({ url: "https://other.example" }, env()).key).toBeUndefined();
    expect(readSettings({}, env({ AIRLOCK_URL: "http://airlock.example" })).key).toBeUndefined();
  });

  test("only the user can read the file", () => {
    const file = writeSettings(stored, env());
    expect(file).toBe(settingsFile(env()));
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  test("a wrong address or key is refused", () => {
    expect(() => readSettings({ url: "localhost:8080" }, env())).toThrow("is not the address");
    const broken = { url: stored.url, key: "two\nlines" };
    expect(() => readSettings(broken, env())).toThrow(UsageError);
  });

  test.each([
    "{",
    "[]",
    "null",
    '{"url": 5}',
    '{"url": "ftp://x"}',
    '{"url": "http://x", "key": "two\\nlines"}',
  ])("a file with %s is refused with its name, and login replaces it", (text) => {
    const file = writeSettings(stored, env());
    writeFileSync(file, text);
    expect(() => readSettings({}, env())).toThrow(
      /config.json cannot be used: .*\n.*airlock login/,
    );
    expect(readSettings({}, env(), true)).toEqual(readSettings({}, {}));
    expect(readSettings(stored, env())).toEqual(stored);
  });

  test("a file that cannot be read or written is refused with its name", () => {
    mkdirSync(settingsFile(env()), { recursive: true });
    expect(() => readSettings({}, env())).toThrow(/config.json cannot be used: EISDIR/);
    expect(() => writeSettings(stored, env())).toThrow(/config.json cannot be written: EISDIR/);
    expect(readdirSync(join(folder, "airlock"))).toEqual(["config.json"]);
  });
});

/** A service that answers with these statuses and then stops. */
async function startService(...statuses: number[]) {
  const notes: string[] = [];
  const server = createServer((_, response) => {
    const status = statuses.shift() ?? 200;
    response.writeHead(status, { Connection: "close" });
    const quota = status === 429 ? "max_cpu_s_day" : undefined;
    response.end(JSON.stringify({ detail: "The queue is full.", quota }));
  });
  const { url, [Symbol.asyncDispose]: end } = await listen(server);
  const terminal = { note: (text: string) => void notes.push(text) } as unknown as Terminal;
  return {
    url,
    notes,
    fetchIt: patientFetch(url, terminal),
    end,
  };
}

test("a service that cannot serve a request now is named once, with its reason", async () => {
  const { url, notes, fetchIt, end } = await startService(503, 503, 200);
  for (const status of [503, 503, 200]) expect((await fetchIt(url)).status).toBe(status);
  expect(notes).toEqual([`${url} cannot serve this now (The queue is full.); trying again …`]);
  await end();
});

test("a met quota that is free again in hours is not said to be tried again", async () => {
  const { url, notes, fetchIt, end } = await startService(429);
  expect((await fetchIt(url)).status).toBe(429);
  expect(notes).toEqual([]);
  await end();
});

test("a refused connection is final at the fifth try, unless a service has answered there", async () => {
  const gone = await startService();
  await gone.end();
  for (let tries = 1; tries < 5; tries++) {
    await expect(gone.fetchIt(gone.url)).rejects.toThrow(TypeError);
  }
  await expect(gone.fetchIt(gone.url)).rejects.toThrow(NoServiceError);
  expect(gone.notes).toEqual([
    `${gone.url} does not answer (nothing listens there); trying again …`,
  ]);

  const lost = await startService(200);
  await lost.fetchIt(lost.url);
  await lost.end();
  for (let tries = 0; tries < 6; tries++) {
    await expect(lost.fetchIt(lost.url)).rejects.toThrow(TypeError);
  }
});

test("an address that can have no service is final at once", async () => {
  const notes: string[] = [];
  const terminal = { note: (text: string) => void notes.push(text) } as unknown as Terminal;
  // One of the ports that no `fetch` connects to.
  const url = "http://127.0.0.1:9";
  await expect(patientFetch(url, terminal)(url)).rejects.toThrow(NoServiceError);
  expect(notes).toEqual([]);
});

const proxies = { http_proxy: "proxy:3128", HTTPS_PROXY: "http://user:secret@secure:8080" };

test.each([
  ["http://airlock.example:8080", "", "proxy:3128"],
  ["https://airlock.example", "other.example", "secure:8080"],
  ["https://airlock.example", "other.example, .example", undefined],
  ["https://airlock.example", "*", undefined],
  ["http://localhost:8080", "", undefined],
  ["http://127.0.0.1:8080", "", undefined],
  ["http://[::1]:8080", "", undefined],
])("the way to %s, with NO_PROXY=%s, leads through %s", (url, NO_PROXY, proxy) => {
  expect(proxyOf(url, { ...proxies, NO_PROXY })).toBe(proxy);
});

test("a proxy of another kind is refused, without its password", () => {
  expect(() => useProxies({ https_proxy: "socks5://user:secret@host" })).toThrow(
    /^https_proxy must be an address such as http:..proxy.example:3128$/,
  );
});

describe("make folder", () => {
  let folder: string;
  beforeEach(() => {
    folder = tempFolder();
  });

  test("a folder is made with those above it, and stays if it exists", () => {
    const path = join(folder, "a/b/c");
    makeFolder(path, 0o700);
    makeFolder(path);
    expect(statSync(path).isDirectory()).toBe(true);
    expect(statSync(join(folder, "a")).mode & 0o777).toBe(0o700);
  });

  test("a folder that the system cannot make is an error that names it", () => {
    expect(() => makeFolder("/proc/none/deep")).toThrow("the folder /proc/none cannot be made");
    writeFileSync(join(folder, "file"), "");
    expect(() => makeFolder(join(folder, "file/deep"))).toThrow("file/deep cannot be made");
  });
});
