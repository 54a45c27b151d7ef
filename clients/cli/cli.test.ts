import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { listen } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { NotFoundError, type Problem } from "../typescript/src/index.ts";
import {
  makeFolder,
  patientFetch,
  proxyOf,
  readSettings,
  settingsFile,
  useProxies,
  writeSettings,
} from "./connection.ts";
import {
  exitCode,
  ExitError,
  explainFailure,
  interruptible,
  NoServiceError,
  UsageError,
} from "./exit.ts";
import { targetIn } from "./files.ts";
import { type EndedRecord, exitCodeOfRecord, explainEnd } from "./follow.ts";
import { readScriptMetadata, satisfiesPython } from "./run.ts";
import { isComplete } from "./sessions.ts";
import {
  bytes,
  duration,
  layOut,
  parseBytes,
  parseDuration,
  parsePairs,
  parseSince,
  type Terminal,
} from "./terminal.ts";
import { chooseByEnd } from "./tool.ts";

const asIs = (_: string, text: string): string => text;
const columns = [{ title: "ID" }, { title: "SIZE", right: true }, { title: "NAME" }];

test("a table lines up its columns, and cuts the last one at the terminal's width", () => {
  const rows = [
    ["a", "1", "short"],
    ["bbb", "1000", "a name that is longer than the terminal"],
  ];
  expect(layOut(columns, rows, 24, asIs)).toEqual([
    "ID   SIZE  NAME",
    "a       1  short",
    "bbb  1000  a name that …",
  ]);
  expect(layOut(columns, rows, undefined, asIs)[2]).toMatch(/terminal$/);
});

test("a row takes several lines if its ids would wrap", () => {
  const row = ["01a2065e-06ad-72d0-a76c-6bfbfa633bc7", "1 kB", "results of a long name"];
  expect(layOut(columns, [row], 40, asIs)).toEqual([
    "ID",
    "  SIZE  NAME",
    "01a2065e-06ad-72d0-a76c-6bfbfa633bc7",
    "  1 kB  results of a long name",
  ]);
  expect(layOut(columns, [row], 20, asIs).at(-1)).toBe("  1 kB  results of …");
});

test("untrusted text cannot move the cursor", () => {
  expect(layOut(columns, [["a", "1", "x\u001b[2J\ny"]], undefined, asIs)[1]).toBe(
    "a      1  x [2J y",
  );
});

test("times, sizes and pairs are shown and read", () => {
  expect([340, 4200, 180_000, 9e6, 2e8].map(duration)).toEqual([
    "340 ms",
    "4.2 s",
    "3 min",
    "3 h",
    "2 d",
  ]);
  expect([0, 999, 1500, 2e9].map(bytes)).toEqual(["0 B", "999 B", "1.5 kB", "2.0 GB"]);
  expect(parseDuration("90s", "--expires")).toBe(90_000);
  expect(() => parseDuration("90", "--expires")).toThrow("--expires");
  expect(
    ["5", "48.2 MB", "10GB", "10g", "1 KiB"].map((text) => parseBytes(text, "--size")),
  ).toEqual([5, 48_200_000, 1e10, 10 * 1024 ** 3, 1024]);
  expect(() => parseBytes("1 heap", "--size")).toThrow("--size");
  expect(parseSince("10m", 1_000_000)).toBe(400_000);
  expect(parseSince("2026-11-22T00:00:00Z")).toBe(Date.UTC(2026, 10, 22));
  expect(parsePairs(["a=b=c"], "-m")).toEqual({ a: "b=c" });
  expect(() => parsePairs(["a"], "-m")).toThrow("name=value");
});

test("the hint where to look depends on the command, not on the words of the refusal", () => {
  const detail = "Any words.";
  const error = new NotFoundError(404, detail, {
    problem: { code: "not_found", detail, correlation_id: "c" } as Problem,
  });
  expect(explainFailure(error, "airlock ps")).toBe(
    "Any words. airlock ps lists those that do.\n(not_found · c)",
  );
  expect(explainFailure(error)).toBe("Any words.\n(not_found · c)");
});

test.each(["SIGINT", "SIGHUP"] as const)(
  "a %s that arrives twice at the same time, as Ctrl-C does under npm, is one interrupt",
  async (name) => {
    const work = async (signal: AbortSignal) => {
      process.emit(name);
      process.emit(name);
      return signal.reason as unknown;
    };
    const reason = await interruptible(work);
    expect(reason).toBeInstanceOf(ExitError);
    expect(reason).toMatchObject({ code: exitCode.interrupted, message: "interrupted" });
    expect(process.listenerCount(name)).toBe(0);
  },
);

const ids = ["01a2-aaaa1111", "01a2-bbbb1111", "01a2-cccc2222"];

test("the end of one id chooses it", () => {
  expect(chooseByEnd(ids, "2222", "job")).toBe("01a2-cccc2222");
  expect(chooseByEnd(ids, "b1111", "job")).toBe("01a2-bbbb1111");
});

test("the end of several ids is refused, and so is that of none", () => {
  expect(() => chooseByEnd(ids, "1111", "job")).toThrow(
    new UsageError("the ids of 2 jobs end with 1111: give more characters"),
  );
  expect(() => chooseByEnd(ids, "01a2", "session")).toThrow(
    /^none of the newest 100 sessions has an id/,
  );
});

test.each(["../a", "/etc/passwd", "a/../../b", ".", ""])(
  "an artifact named %j is not saved outside the folder",
  (name) => {
    expect(() => targetIn("out", name)).toThrow("outside out");
  },
);

test("an artifact in a folder is saved in that folder", () => {
  expect(targetIn("out", "plots/a.png")).toBe("out/plots/a.png");
});

// The message says more than the traceback that the code has written.
const message = "ModuleNotFoundError: No module named 'a'. The requirements were not installed";
const error = { type: "import_error", message };

test.each([
  [{ status: "succeeded", exit_code: 0 }, 0],
  [{ status: "failed", exit_code: 3, error }, 3],
  [{ status: "failed", exit_code: 0, error: { type: "json_error", message } }, 1],
  [{ status: "failed", exit_code: null, error }, 125],
  [{ status: "failed", exit_code: null, error: { type: "compile_error", message } }, 1],
])("the command fails where the record says so: %o", (record, code) => {
  expect(exitCodeOfRecord(record as unknown as EndedRecord)).toBe(code);
});

test.each([
  [{ status: "succeeded", exit_code: 0, error: null }, undefined],
  [{ status: "failed", exit_code: 1, error }, `failed (exit code 1): import_error: ${message}`],
  [{ status: "timeout", exit_code: null, error }, `timeout: import_error: ${message}`],
  [{ status: "cancelled", exit_code: null, error: null }, "cancelled"],
  [
    { status: "cancelled", exit_code: 143, error: { type: "cancelled", message: "It was." } },
    "cancelled (exit code 143): It was.",
  ],
])("the end of a job is shown with its whole message: %o", (record, told) => {
  expect(explainEnd(record as unknown as EndedRecord)).toBe(told);
});

test.each([
  [">=3.11", "3.13", true],
  [">=3.14", "3.13", false],
  [">=3.13.4", "3.13", true],
  [">=3.13.4", "3.13.2", false],
  [">=3.9, <3.13", "3.13", false],
  [">=3.9,<4", "3.13", true],
  ["<3.13.5", "3.13", true],
  [">3.13", "3.13", true],
  ["<=3.12", "3.13", false],
  ["==3.12.*", "3.13", false],
  ["==3.*", "3.13", true],
  ["==3.13", "3.13", true],
  ["==3.13", "3.13.2", false],
  ["!=3.13.*", "3.13", false],
  ["!=3.13.1", "3.13", true],
  ["~=3.11", "3.13", true],
  ["~=3.11.2", "3.13", false],
  ["~=3.13.2", "3.13", true],
])("requires-python %s of a job type with %s: %s", (required, version, satisfied) => {
  expect(satisfiesPython(required, version)).toBe(satisfied);
});

test("what is not a version specifier is refused", () => {
  expect(() => satisfiesPython("3.11", "3.13")).toThrow('must look like ">=3.11", not "3.11"');
});

const script = (lines: string): string => `import sys\n\n# /// script\n${lines}\n# ///\nprint(1)\n`;

test.each([
  ["no block", "print(1)\n", []],
  [
    "a block",
    script('# requires-python = ">=3.11"\n# dependencies = ["numpy", "rich>=13"]'),
    ["numpy", "rich>=13"],
  ],
  ["a list over lines", script('# dependencies = [\n#   "numpy",\n#\n# ]'), ["numpy"]],
  [
    "lines that end with CRLF",
    script('# dependencies = ["numpy"]').replaceAll("\n", "\r\n"),
    ["numpy"],
  ],
  ["a block of another type", '# /// other\n# dependencies = ["numpy"]\n# ///\n', []],
  ["a block without an end", '# /// script\n# dependencies = ["numpy"]\n', []],
  ["a block without dependencies", script('# requires-python = ">=3.11"'), []],
])("reads the dependencies of a script with %s", (_, code, dependencies) => {
  expect(readScriptMetadata(code).dependencies).toEqual(dependencies);
});

test.each([
  ["two blocks", script("# a = 1") + script("# a = 1"), "two"],
  ["text that is no TOML", script("# dependencies = ["), "no TOML"],
  ["dependencies that are no list", script('# dependencies = "numpy"'), "a list of texts"],
])("refuses a script with %s", (_, code, message) => {
  expect(() => readScriptMetadata(code)).toThrow(message);
});

test.each([
  ["x = 1", true],
  ["", true],
  ["f(1,", false],
  ["f(1,\n2)", true],
  ["x = {'a': 1}", true],
  ["s = '''a", false],
  ["s = '''a\nb'''", true],
  ["s = '(' # [", true],
  ["s = 'it\\'s ('", true],
  ["s = 'never ended", true],
  ["x = 1 + \\", false],
  ["for n in range(3):", false],
  ["for n in range(3):\n    print(n)", false],
  ["for n in range(3):\n    print(n)\n", true],
  ["if a: # why\n    b", false],
  ["d = {\n'a':\n1}", true],
  ["@cache", false],
  ["@cache\ndef f(): return 1\n", true],
  [")", true],
])("%j: %j", (text, isWhole) => {
  expect(isComplete(text.split("\n"))).toBe(isWhole);
});

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
