import { describe, expect, test } from "vitest";
import { refusal } from "../testing/config-refusal.ts";
import { loadConfig } from "./config.ts";

describe("an unknown key is refused", () => {
  test.each([
    [{ prot: 1 }, {}, "unknown configuration key: prot"],
    [{}, { AIRLOCK_API_KEY: "hunter2" }, "unknown configuration key: api_key;"],
    [{}, { AIRLOCK_CONSTRUCTOR: "x" }, "unknown configuration key: constructor"],
    [
      { job_types: { ml: { memory: "1g" } } },
      {},
      "unknown configuration key in job_types.ml: memory",
    ],
  ])("%j %j", (file, env, message) => {
    expect(refusal(file, env)).toContain(message);
  });

  test("but not a variable of another program", () => {
    expect(loadConfig({}, { AIRLOCKED: "1", PATH: "/bin" })).toEqual(loadConfig({}, {}));
  });
});

describe("a value that is not allowed", () => {
  test("in the environment gives the same message", () => {
    expect(refusal({}, { AIRLOCK_PORT: "http" })).toBe(
      'port = "http": Invalid input: expected number, received string',
    );
    expect(refusal({ port: 1 }, { AIRLOCK_PORT: "70000" })).toContain("port = 70000: ");
  });

  test("deep in a job type is shown with its path, without the rest", () => {
    const job_types = { ml: { env: { TOKEN: "hunter2" }, memory_limit: "7t" } };
    for (const [file, env] of [
      [{ job_types }, {}],
      [{}, { AIRLOCK_JOB_TYPES: JSON.stringify(job_types) }],
    ] as const) {
      expect(refusal(file, env)).toMatch(/^job_types\.ml\.memory_limit = "7t": must be a number/);
    }
  });

  test("never shows the secrets of webhooks", () => {
    const right = `whsec_${"A".repeat(32)}`;
    const wrong = "whsec_wrong-but-secret";
    for (const config of [
      { webhook_callbacks: { hosts: ["a.example"], secrets: [wrong] } },
      { webhook_callbacks: wrong },
      { webhook_endpoints: { a: { url: "https://a.example", secrets: [right, wrong] } } },
      { webhook_endpoints: { a: { url: `ftp://${wrong}`, secrets: [right] } } },
    ]) {
      expect(refusal(config, {})).toContain("(secret)");
      expect(refusal(config, {})).not.toContain("wrong");
    }
  });

  test("is a lease_ttl_s below liveness_s", () => {
    expect(refusal({ lease_ttl_s: 10 }, {})).toBe(
      "lease_ttl_s = 10: must be at least liveness_s (30): set it to 30 or more, or liveness_s to 10 or less",
    );
    expect(refusal({}, { AIRLOCK_LIVENESS_S: "200" })).toBe(
      "lease_ttl_s: must be at least liveness_s (200): set it to 200 or more, or liveness_s to 180 or less",
    );
    expect(loadConfig({ lease_ttl_s: 10, liveness_s: 10 }, {})).toMatchObject({ lease_ttl_s: 10 });
  });

  test("has its own line in the message if there are several", () => {
    expect(refusal({ port: -1, log_level: "loud" }, {}).split("\n")).toHaveLength(2);
  });
});

describe("a secret is never in a message", () => {
  const secret = "hunter2";
  test.each<[string, Record<string, unknown>, Record<string, string>]>([
    ["a short key", { api_keys: [secret] }, {}],
    ["a key that is no list", { api_keys: { a: secret } }, {}],
    ["a key from the environment", {}, { AIRLOCK_API_KEYS: secret }],
    ["an agent's token", { agent_token: secret }, {}],
    ["accepted tokens", {}, { AIRLOCK_AGENT_TOKENS: `["${secret}"]` }],
    ["a database token", { database_auth_token: [secret] }, {}],
    ["a key in an address", { s3_endpoint: `https://a:${secret}@s3.example` }, {}],
    ["an S3 key", { s3_secret_access_key: [secret] }, {}],
    ["a variable of a job type", { job_types: { ml: { env: { "A-B": secret } } } }, {}],
    ["a variable that is no text", { job_types: { ml: { env: { A: { b: secret } } } } }, {}],
    ["variables that are no table", { job_types: { ml: { env: secret } } }, {}],
    ["malformed job types", {}, { AIRLOCK_JOB_TYPES: `{"ml":{"env":{"A":"${secret}"}` }],
    ["a job type under a bad name", { job_types: { ML: { env: { A: secret } } } }, {}],
  ])("%s", (_title, file, env) => {
    const message = refusal(file, env);
    expect(message).not.toContain(secret);
    expect(message).toContain("(secret)");
  });
});
