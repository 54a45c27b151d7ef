import { Hono } from "hono";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { Config } from "../../shared/config/config.ts";
import { Scope } from "../../shared/wire/access.ts";
import { createApp } from "../app.ts";
import { executions } from "../store/job-tables.ts";
import { setLimits } from "../tenants/sql.ts";
import { createKey, type NewKey, revokeKey, rotateKey, showKeys } from "../tenants/tenants.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { onExecute } from "../testing/statements.ts";
import { by, testDeps } from "../testing/temp-store.ts";
import { store, useOneStore, useStore } from "../testing/use-store.ts";
import { type AppEnv } from "./context.ts";
import { checkExposure, clientNetwork, findCallers, identifyCaller } from "./identity.ts";
import { checkTable } from "./scopes.ts";

describe("identify", () => {
  const configured = "a-key-of-16-characters";
  const maker = { ...by(), scopes: Scope.options };

  useStore();
  let now = 1_000_000_000;
  let reads = 0;
  let background: Promise<unknown>[] = [];
  let deps: ReturnType<typeof testDeps>;
  let app: ReturnType<typeof createApp>;
  beforeEach(() => {
    onExecute(store.db.client, (sql) => {
      if (/^select.*api_keys/i.test(sql)) reads += 1;
    });
    background = [];
    const config = { api_auth_enabled: true, api_keys: [configured] };
    deps = {
      ...testDeps(store.db, store.folder, () => now, config),
      waitUntil: (work) => void background.push(work),
    };
    app = createApp(deps);
  });

  const newKey = (changes: Partial<NewKey> = {}) =>
    createKey(deps, maker, {
      name: "ci",
      tenant: "search",
      scopes: ["read"],
      expiresInMs: null,
      ...changes,
    });
  const unknownKey = (n: number): string => `alk_${String(n).padStart(43, "0")}`;
  async function statusWith(key: string, path = "/executions", of = app): Promise<number> {
    return (await of.request(path, { headers: { Authorization: `Bearer ${key}` } })).status;
  }

  test("a managed key is read once a second, a configured one never", async () => {
    const { key } = await newKey();
    reads = 0;
    for (let n = 0; n < 20; n++) expect(await statusWith(key)).toBe(200);
    expect(reads).toBe(1);
    for (let n = 0; n < 20; n++) expect(await statusWith(configured)).toBe(200);
    expect(reads).toBe(1);
    now += 1000;
    expect(await statusWith(key)).toBe(200);
    expect(reads).toBe(2);
  });

  test("a key holds until it expires, and no longer", async () => {
    const { key, expires_at } = await newKey({ expiresInMs: 60_500 });
    expect(expires_at).toBe(new Date(now + 60_500).toISOString());
    now += 60_499;
    expect(await statusWith(key)).toBe(200);
    now += 1;
    expect(await statusWith(key)).toBe(401);
  });

  test("a rotated key's old one holds for as long as was said, and the key's id stays", async () => {
    const { id, key } = await newKey();
    const next = await rotateKey(deps, { ...maker, at: now }, id, 60_500);
    expect(next).toMatchObject({ id, old_valid_until: new Date(now + 60_500).toISOString() });
    now += 60_499;
    expect([await statusWith(key), await statusWith(next.key)]).toEqual([200, 200]);
    now += 1;
    expect([await statusWith(key), await statusWith(next.key)]).toEqual([401, 200]);
  });

  test.each([
    ["a key", "/keys", '{"name":"mine","scopes":["admin"]}'],
    ["a job", "/execute/async", '{"code":"1"}'],
    ["a file", "/files?name=a", "bytes"],
  ])(
    "%s is not made with a key that becomes void before the whole request is there",
    async (_, path, text) => {
      const { id, key } = await newKey({ scopes: ["admin", "run"] });
      const body = new ReadableStream<Uint8Array>(
        {
          async pull(controller) {
            await revokeKey(deps, { ...maker, at: now }, id);
            now += 1000;
            controller.enqueue(new TextEncoder().encode(text));
            controller.close();
          },
        },
        { highWaterMark: 0 },
      );
      const headers = {
        Authorization: `Bearer ${key}`,
        "Content-Type": path.startsWith("/files") ? "application/octet-stream" : "application/json",
        "Content-Length": String(text.length),
      };
      const request = { method: "POST", body, headers, duplex: "half" as const };
      expect((await app.request(path, request)).status).toBe(401);
      const { rows } = await store.db.client.execute(
        "select id from executions union all select id from files union all select id from api_keys",
      );
      expect(rows.map((row) => row[0])).toEqual([id]);
    },
  );

  test("a key that is revoked, also twice, takes no other with it", async () => {
    const [{ id, key }, other] = [await newKey(), await newKey()];
    const revokedAt = [];
    for (; revokedAt.length < 2; now += 1000)
      revokedAt.push((await revokeKey(deps, { ...maker, at: now }, id)).revoked_at);
    expect([await statusWith(key), await statusWith(other.key)]).toEqual([401, 200]);
    expect(revokedAt[1]).toBe(revokedAt[0]);
  });

  test("many requests that wait with a key which becomes void are all refused as such", async () => {
    const { id, key } = await newKey();
    let recheck: (() => Promise<void>) | undefined;
    const client = new Hono<AppEnv>()
      .use(identifyCaller(deps, findCallers(deps).find))
      .get("/", (c) => {
        recheck = c.get("caller")?.recheck;
        return c.text("x");
      });
    await client.request("/", { headers: { Authorization: `Bearer ${key}` } });
    await recheck?.();
    await revokeKey(deps, { ...maker, at: now }, id);
    now += 1000;
    for (let n = 0; n < 100; n++) await expect(recheck?.()).rejects.toThrow("Send an API key");
  });

  test("unknown keys cause a limited number of reads, and lock out no key at their address, not even one that is new here", async () => {
    const { key } = await newKey();
    reads = 0;
    const answers: number[] = [];
    for (let n = 0; n < 200; n++) answers.push(await statusWith(unknownKey(n)));
    expect(answers).toEqual([...Array<number>(30).fill(401), ...Array<number>(170).fill(429)]);
    expect(reads).toBeLessThanOrEqual(31);
    expect(await statusWith(key)).toBe(200);
  });

  test("unknown keys of one IPv6 network are limited together", async () => {
    const answers: number[] = [];
    let address = "";
    const of = createApp({ ...deps, clientAddress: () => address });
    for (let n = 0; n < 40; n++) {
      address = `2001:db8::${n}`;
      answers.push(await statusWith(unknownKey(n), "/executions", of));
    }
    expect(answers.filter((status) => status === 401)).toHaveLength(30);
  });

  test("the time of last use is written once a minute, and a failure of that refuses nobody", async () => {
    const { key } = await newKey();
    const usedAt = async () => {
      await Promise.all(background);
      const [shown] = await showKeys(deps);
      return shown!.last_used_at;
    };
    const first = new Date(now).toISOString();
    expect(await statusWith(key)).toBe(200);
    expect(await usedAt()).toBe(first);
    now += 60_000;
    expect(await statusWith(key)).toBe(200);
    expect(await usedAt()).toBe(first);
    now += 1001;
    expect(await statusWith(key)).toBe(200);
    expect(await usedAt()).toBe(new Date(now).toISOString());
    now += 120_000;
    await store.db.client.execute(
      "create trigger full before update on api_keys begin select raise(abort, 'full'); end",
    );
    expect(await statusWith(key)).toBe(200);
    await Promise.all(background);
  });

  test("an app with a route that the table of scopes lacks, or without one of the table, is not made", () => {
    expect(() => checkTable(app)).not.toThrow();
    const more = createApp(deps).get("/secrets", (c) => c.text("x"));
    expect(() => checkTable(more)).toThrow("lacks GET /secrets");
    const any = createApp(deps).all("/any", (c) => c.text("x"));
    expect(() => checkTable(any)).toThrow("lacks ALL /any");
    const less = { routes: app.routes.filter(({ path }) => path !== "/usage") };
    expect(() => checkTable(less)).toThrow("the app lacks GET /usage");
  });
});

describe("key id", () => {
  const token = "a-token-of-16-characters";
  const [key, otherKey] = ["a-key-of-16-characters", "b-key-of-16-characters"] as const;

  useStore();

  function appWith(api_auth_enabled: boolean) {
    const config = { agent_tokens: [token], api_auth_enabled, api_keys: [key, otherKey] };
    const app = createApp(testDeps(store.db, store.folder, Date.now, config));

    async function post<T>(path: string, body: object, bearer: string): Promise<T> {
      const headers = { Authorization: `Bearer ${bearer}` };
      const reply = await app.request(path, jsonRequest("POST", body, headers));
      expect(reply.status).toBeLessThan(300);
      return (await reply.json()) as T;
    }

    return {
      submit: async (
        bearer: string,
        path = "/execute/async",
        body: object = { code: "1" },
      ): Promise<string> => (await post<{ job_id: string }>(path, body, bearer)).job_id,
      /** The keys that the stored jobs are of, oldest job first. */
      keyIds: async (): Promise<(string | null)[]> => {
        const stored = store.db.orm.select().from(executions);
        return (await stored.orderBy(executions.id)).map(({ keyId }) => keyId);
      },
      agent: new ScriptedAgent(app, token),
    };
  }

  test("a stored job names the key that submitted it, but does not contain it; an agent is not told", async () => {
    const { submit, keyIds, agent } = appWith(true);
    for (const bearer of [key, otherKey, key]) await submit(bearer);
    const [first, second, third] = await keyIds();
    expect(first).toMatch(/^[0-9a-f]{16}$/);
    expect(second).toMatch(/^[0-9a-f]{16}$/);
    expect(second).not.toBe(first);
    expect(third).toBe(first);
    const { text } = await agent.send("POST", "/poll", JSON.stringify(agent.pollRequest()));
    expect(text).toContain("execution_id");
    expect(text).not.toContain(first);
  });

  test("a derived job belongs to the key that requested it", async () => {
    const { submit, keyIds } = appWith(true);
    const id = await submit(key);
    await submit(otherKey, `/jobs/${id}/rerun`, {});
    await submit(otherKey, `/jobs/${id}/fork`);
    const [first, rerun, derived] = await keyIds();
    expect(rerun).not.toBe(first);
    expect(derived).toBe(rerun);
  });

  test("without keys all clients count as one", async () => {
    const { submit, keyIds } = appWith(false);
    await submit(key);
    await submit(otherKey);
    expect(await keyIds()).toEqual([null, null]);
  });
});

test.each([
  ["192.0.2.1", "192.0.2.1"],
  ["unknown", "unknown"],
  ["::ffff:192.0.2.1", "192.0.2.1"],
  ["::ffff:c000:201", "192.0.2.1"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:DB8:0001:2::9", "2001:db8:1:2::/64"],
  ["2001:db8::1", "2001:db8:0:0::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
])("%s is limited as %s", (address, network) => {
  expect(clientNetwork(address)).toBe(network);
});

const locked = { api_auth_enabled: true, api_keys: ["key-0123456789abcdef"] };
const allowed = { host: "0.0.0.0", allow_unauthenticated_network_access: true };

function exposureOf(config: Partial<Config>): string | undefined {
  try {
    return checkExposure(Config.parse(config));
  } catch (error) {
    return `refused: ${(error as Error).message}`;
  }
}

test.each<[string, Partial<Config>, RegExp]>([
  ["a network without keys", { host: "0.0.0.0" }, /^refused: host = "0\.0\.0\.0" .*api_keys/],
  ["a network without keys, if that is allowed", allowed, /^anyone who can reach 0\.0\.0\.0:/],
  [
    "for a compat_key that is no key of clients",
    { ...locked, compat_key: "another-key-012345" },
    /^refused: compat_key is not one of api_keys/,
  ],
])("serving %s is refused or gives a warning", (_what, config, message) => {
  expect(exposureOf(config)).toMatch(message);
});

describe("limits", () => {
  useOneStore();

  test.each([
    ["in memory", {}],
    ["in a database that processes share", { database_url: "libsql://one.example" }],
  ])("requests of all keys of a tenant are counted together, %s", async (_, shared) => {
    // The store in memory has no other clock.
    let now = Date.now();
    const keys = ["a-key-of-16-characters", "b-key-of-16-characters"];
    const limits = { api_rate_limit_requests: 9, api_rate_limit_window_seconds: 60 };
    const config = { api_auth_enabled: true, api_keys: keys, ...limits, ...shared };
    const app = createApp(testDeps(store.db, store.folder, () => now, config));
    const ask = (n: number) =>
      app.request("/nowhere", { headers: { Authorization: `Bearer ${keys[n % 2]}` } });
    const none = { max_queued: null, max_running: null, max_stored_bytes: null };
    const setMost = (max_requests: number | null) =>
      setLimits(store.db, "default", { ...none, max_cpu_s_day: null, max_requests }, by());
    await setMost(3);
    for (let n = 0; n < 3; n++) expect((await ask(n)).status).toBe(404);
    const refused = await ask(3);
    expect(refused.status).toBe(429);
    expect(((await refused.json()) as { detail: string }).detail).toContain("max_requests");
    const wait = Number(refused.headers.get("Retry-After"));
    expect(wait).toBeGreaterThan(0);
    expect(wait).toBeLessThanOrEqual(60);
    await setMost(null);
    now += 1000;
    expect((await ask(3)).status).toBe(404);
  });

  test("without the database, pages about the interface are there: a limit that cannot be read refuses nothing", async () => {
    const key = "a-key-of-16-characters";
    const config = { api_auth_enabled: true, api_keys: [key], api_rate_limit_requests: 9 };
    const app = createApp(testDeps(store.db, store.folder, Date.now, config));
    const ask = async () =>
      (await app.request("/openapi.json", { headers: { Authorization: `Bearer ${key}` } })).status;
    const locked = Object.assign(new Error("database is locked"), { code: "SQLITE_BUSY" });
    using execute = vi.spyOn(store.db.client, "execute").mockRejectedValue(locked);
    expect(await ask()).toBe(200);
    execute.mockRejectedValue(new Error("a fault of the service"));
    expect(await ask()).toBe(500);
  });
});
