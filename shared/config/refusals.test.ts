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
