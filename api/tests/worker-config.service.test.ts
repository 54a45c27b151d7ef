import { expect, test } from "vitest";
import { servers } from "../testing/contract/servers.ts";
import { built } from "../testing/build-worker.ts";
import { startWorker } from "../testing/start-worker.ts";

test("wrangler.toml is complete: it has every binding that the worker uses", async () => {
  const { said } = await built();
  for (const binding of ["WAKES (Wakes)", "ARTIFACTS (airlock-artifacts)", "ASSETS"]) {
    expect(said).toContain(`env.${binding}`);
  }
  expect(said).toContain('env.AIRLOCK_API_AUTH_ENABLED ("true")');
  expect(said).not.toMatch(/warning/i);
});

test("a worker without its keys answers no requests, and says where to look", async () => {
  const service = await startWorker({ ...servers.open, AIRLOCK_API_AUTH_ENABLED: "true" });
  try {
    const reply = await fetch(`${service.url}/execute/async`, { method: "POST" });
    expect([reply.status, reply.headers.get("Retry-After")]).toEqual([503, "60"]);
    expect(await reply.text()).toContain("wrangler tail");
  } finally {
    await service.close();
  }
});

test("an uploaded file may have what the platform takes in one request, and the limit says so", async () => {
  const service = await startWorker({ ...servers.open, AIRLOCK_MAX_FILE_BYTES: "1000000000" });
  try {
    const document = await (await fetch(`${service.url}/openapi.json`)).text();
    const [limit] = /At most \d+ bytes \(`max_file_bytes`\)/.exec(document) ?? [];
    expect(limit).toBe("At most 100000000 bytes (`max_file_bytes`)");
  } finally {
    await service.close();
  }
});
