import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { refusedStart, startNode } from "../testing/start-node.ts";

const folder = mkdtempSync(join(tmpdir(), "airlock-config-"));
afterAll(() => rmSync(folder, { recursive: true }));

function tomlOf(text: string): string {
  const path = join(folder, "airlock.toml");
  writeFileSync(path, text);
  return path;
}

test.concurrent.each<[string, Record<string, string>, string]>([
  [
    "an unknown variable",
    { AIRLOCK_MAX_TIMOUT: "60" },
    "airlock api: unknown configuration key: max_timout; docs/configuration.md lists the keys\n",
  ],
  [
    "a value out of range",
    { AIRLOCK_MAX_TIMEOUT: "86401" },
    "airlock api: max_timeout = 86401: Too big: expected number to be <=86400\n",
  ],
  [
    "a value of another kind",
    { AIRLOCK_SECURITY_MODE: "lax" },
    'airlock api: security_mode = "lax": Invalid option: expected one of "permissive"|"strict"\n',
  ],
  [
    "a short key, which it does not show",
    { AIRLOCK_API_KEYS: "hunter2" },
    "airlock api: api_keys.0 = (secret): must be at least 16 characters\n",
  ],
  [
    "a file's job type with an unknown field",
    { AIRLOCK_CONFIG: tomlOf('[job_types.ml]\nmemory = "1g"\n') },
    "airlock api: unknown configuration key in job_types.ml: memory; docs/configuration.md lists the keys\n",
  ],
])("the API does not start with %s, and says why", async (_title, vars, said) => {
  expect(await refusedStart(vars)).toEqual({ code: 1, said });
});

test("it starts with the keys of the file; the environment wins", async () => {
  const path = join(folder, "good.toml");
  writeFileSync(path, "max_queue_size = 7\nproduction_mode = false\n");
  const api = await startNode({ AIRLOCK_CONFIG: path, AIRLOCK_PRODUCTION_MODE: "true" });
  try {
    const health = (await (await fetch(`${api.url}/health`)).json()) as object;
    expect(health).toMatchObject({ production_mode: true, queue_stats: { max_queue_size: 7 } });
  } finally {
    await api.close();
  }
});
