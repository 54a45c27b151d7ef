import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestService } from "../../scripts/testing/test-service.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { refusedStart, startNode, startNodeIn } from "../testing/start-node.ts";

describe("node start", () => {
  const folder = tempFolder();
  const taken = createServer();
  beforeAll(async () => {
    taken.listen(0, "127.0.0.1");
    await once(taken, "listening");
    writeFileSync(join(folder, "file"), "");
    mkdirSync(join(folder, "folder", "airlock.db"), { recursive: true });
    mkdirSync(join(folder, "garbage"));
    writeFileSync(join(folder, "garbage", "airlock.db"), "this is no database\n".repeat(1000));
  });
  afterAll(() => taken.close());

  const takenPort = (): string => String((taken.address() as AddressInfo).port);

  type Vars = Record<string, string>;

  function tomlOf(text: string): string {
    const path = join(folder, "airlock.toml");
    writeFileSync(path, text);
    return path;
  }

  test.each<[string, () => Vars | Promise<Vars>, RegExp]>([
    [
      "the port is taken",
      () => ({ AIRLOCK_PORT: takenPort() }),
      /^airlock api: port \d+ on 127\.0\.0\.1 is taken: choose another \(AIRLOCK_PORT\)\n$/,
    ],
    [
      "the address is not this machine's",
      () => ({
        AIRLOCK_HOST: "192.0.2.1",
        AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "true",
        AIRLOCK_LOG_LEVEL: "error",
      }),
      /^airlock api: cannot listen on 192\.0\.2\.1:0: .*EADDRNOTAVAIL.*\n$/,
    ],
    [
      "the data folder is a file",
      () => ({ AIRLOCK_DATA_DIR: join(folder, "file") }),
      /^airlock api: cannot use the data folder \S+file \(AIRLOCK_DATA_DIR\): .*EEXIST.*\n$/,
    ],
    [
      "the data folder is inside a file",
      () => ({ AIRLOCK_DATA_DIR: join(folder, "file", "data") }),
      /^airlock api: cannot use the data folder \S+data \(AIRLOCK_DATA_DIR\): .*ENOTDIR.*\n$/,
    ],
    [
      "the data folder is where none can be made",
      () => ({ AIRLOCK_DATA_DIR: "/proc/airlock/data" }),
      /^airlock api: cannot use the data folder \/proc\/airlock\/data \(AIRLOCK_DATA_DIR\): .*\/proc accepts no folders\n$/,
    ],
    [
      "the database cannot be opened",
      () => ({ AIRLOCK_DATA_DIR: join(folder, "folder") }),
      /^airlock api: cannot open the database file:\S+airlock\.db: .*unable to open.*\n$/i,
    ],
    [
      "the database file is not a database",
      () => ({ AIRLOCK_DATA_DIR: join(folder, "garbage") }),
      /^airlock api: cannot open the database file:\S+airlock\.db: .*not a database.*\n$/,
    ],
    [
      "the database server does not answer",
      () => ({ AIRLOCK_DATABASE_URL: "http://me:hunter2@127.0.0.1:1/?authToken=hunter2" }),
      /^airlock api: cannot open the database http:\/\/127\.0\.0\.1:\d+\/: (?!.*hunter2).+\n$/,
    ],
    [
      "keys are required and none is set",
      () => ({ AIRLOCK_API_AUTH_ENABLED: "true" }),
      /^airlock api: api_auth_enabled is true, but api_keys is empty: .+\n$/,
    ],
    [
      "a variable is unknown",
      () => ({ AIRLOCK_MAX_TIMOUT: "60" }),
      /^airlock api: unknown configuration key: max_timout; docs\/configuration\.md lists the keys\n$/,
    ],
  ])("if %s, it does not start and says why in one line", async (_when, vars, line) => {
    const { code, said } = await refusedStart({
      AIRLOCK_PORT: "0",
      AIRLOCK_DATA_DIR: mkdtempSync(join(folder, "data-")),
      ...(await vars()),
    });
    expect(said).toMatch(line);
    expect(said.trimEnd().split("\n")).toHaveLength(1);
    expect(code).toBe(1);
  });

  test("keys that are set but not required give a warning, even on loopback", async () => {
    const api = await startNode({
      AIRLOCK_API_KEYS: "0123456789abcdef",
      AIRLOCK_LOG_LEVEL: "warning",
    });
    await api.close();
    expect(await api.logged).toMatch(
      /^\S+ \[-\] WARNING airlock\.api api_keys are set, but no request needs one: .+\n$/,
    );
  });

  test("serving a network with keys gives no warning; a data folder for everybody, such as /tmp, keeps its rights", async () => {
    const data = join(folder, "everybody");
    mkdirSync(data);
    chmodSync(data, 0o1777);
    const network = {
      AIRLOCK_HOST: "0.0.0.0",
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_API_KEYS: "0123456789abcdef",
      AIRLOCK_LOG_LEVEL: "warning",
    };
    const api = await startNodeIn(data, network);
    await api.close();
    expect(await api.logged).toBe("");
    expect(statSync(data).mode & 0o7777).toBe(0o1777);
  });

  test("no other user of the host can read what it stores, also in a folder of before, which it says once", async () => {
    const data = join(folder, "open");
    mkdirSync(join(data, "artifacts"), { recursive: true });
    const level = { AIRLOCK_LOG_LEVEL: "warning" };
    await (await startNodeIn(data, level)).close();
    const all = (): string[] => ["", ...readdirSync(data)].map((name) => join(data, name));
    for (const path of all()) chmodSync(path, 0o755);
    const api = await startNodeIn(data, level);
    await fetch(`${api.url}/files?name=a`, { method: "POST", body: "bytes" });
    const open = all().filter((path) => (statSync(path).mode & 0o077) !== 0);
    await api.close();
    expect(open).toEqual([]);
    const said = (await api.logged).match(/other users of this host could read/g);
    expect(said).toHaveLength(1);
    const again = await startNodeIn(data, level);
    await again.close();
    expect(await again.logged).not.toContain("other users");
  });

  test("a second process on the same database file says so; one that is started after a kill does not", async () => {
    const data = join(folder, "shared");
    const start = () => startNodeIn(data, { AIRLOCK_LOG_LEVEL: "warning" });
    const [first, second] = [await start(), await start()];
    await first.close();
    const third = await start();
    await Promise.all([second.close(), third.close()]);
    const fourth = await start();
    await fourth.close();
    const logged = await Promise.all([first, second, third, fourth].map((api) => api.logged));
    const says = logged.map((text) => text.includes("another API process uses"));
    expect(says).toEqual([false, true, true, false]);
  });

  test("it starts with the keys of the file; the environment wins", async () => {
    const file = tomlOf("max_queue_size = 7\nproduction_mode = false\n");
    const api = await startNode({ AIRLOCK_CONFIG: file, AIRLOCK_PRODUCTION_MODE: "true" });
    try {
      const health = (await (await fetch(`${api.url}/health`)).json()) as object;
      expect(health).toMatchObject({ production_mode: true, queue_stats: { max_queue_size: 7 } });
    } finally {
      await api.close();
    }
  });
});

const key = "key-0123456789abcdef";

test("without compat_key, protocols without keys are refused where the service has keys; what compat does not name is not there", async () => {
  await using service = await startTestService({
    key,
    api: { AIRLOCK_COMPAT: "piston,sandbox-fusion" },
  });
  const at = (path: string, init: RequestInit = {}) => fetch(`${service.url}/compat/${path}`, init);
  const body = JSON.stringify({ code: "x", language: "python" });
  const refused = await at("sandbox-fusion/run_code", { method: "POST", body });
  const detail = expect.stringContaining("API key") as string;
  expect([refused.status, await refused.json()]).toEqual([401, { detail }]);
  expect((await at("piston/api/v2/runtimes")).status).toBe(401);
  expect((await at("dify/health", { headers: { "X-API-Key": key } })).status).toBe(404);
});
