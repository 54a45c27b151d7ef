import { expect, test } from "vitest";
import { startTestService } from "../../scripts/testing/test-service.ts";

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
