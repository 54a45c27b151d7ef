import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { isLab } from "../../shared/testing/test-file.ts";
import { groups as known } from "../http/openapi.ts";
import { openBrowser, openPage, type WatchedPage } from "../testing/browser.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { startNode } from "../testing/start-node.ts";
import { startWorker } from "../testing/start-worker.ts";

const token = "agent-token-0123456789";
const key = "api-key-0123456789abcd";
const open = { AIRLOCK_AGENT_TOKENS: token };
const locked = { ...open, AIRLOCK_API_AUTH_ENABLED: "true", AIRLOCK_API_KEYS: key };

let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser();
});
afterAll(() => browser.close());

interface Service {
  url: string;
  close(): Promise<void>;
}

// In workerd in the service tier, which bundles the page's files in its own way; on Node in the lab.
describe(`/docs on ${isLab ? "Node" : "workerd"}`, needs("chromium"), () => {
  let api: Service;
  /** Both rows use it: it takes seconds of CPU time to draw. */
  let docs: WatchedPage;
  beforeAll(async () => {
    api = await (isLab ? startNode : startWorker)({ ...locked, AIRLOCK_API_DOCS_PUBLIC: "true" });
    docs = await openDocs(api.url);
  });
  afterAll(() => api.close());

  test("shows every group in order, requests nothing from other hosts, and violates no policy", async () => {
    const { page, requested, complaints } = docs;
    expect(await page.title()).toBe("Airlock API");
    const groups = await page.locator(".opblock-tag > :first-child").allInnerTexts();
    expect(groups).toEqual(known.map(({ name }) => name));
    for (const name of ["Execute-execute", "Jobs-getJobResult", "Artifacts-downloadArtifact"]) {
      const operation = page.locator(`#operations-${name}`);
      await operation.locator(".opblock-summary-control").click();
      await operation.locator(".execute").waitFor();
      await operation.locator(".opblock-summary-control").click();
    }
    expect(requested.length).toBeGreaterThanOrEqual(6);
    expect(requested.filter((address) => !address.startsWith(`${api.url}/`))).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test("runs an execution from the page, with a key", async () => {
    const { page } = docs;
    const execute = page.locator("#operations-Execute-execute");
    const status = execute.locator(".live-responses-table tbody .response-col_status").first();
    await execute.locator(".opblock-summary-control").click();
    await execute.locator(".execute").click();
    await status.waitFor();
    expect(await status.innerText()).toContain("401");

    await page.locator("button.authorize").first().click();
    await page.locator("#api_key_value").fill(key);
    await page.locator(".modal-ux .auth-btn-wrapper .authorize").first().click();
    await page.locator(".modal-ux .btn-done").first().click();

    const agent = new ScriptedAgent(api.url, token);
    await agent.poll();
    await execute.locator(".execute").click();
    const job = await agent.takeJob();
    expect(job.code).toBe('print("Hello from inside the container")\n');
    await agent.result(job.lease_id, { stdout_base64: btoa("Hello from a page\n") });

    await execute.locator(".live-responses-table", { hasText: "Hello from a page" }).waitFor();
    expect(await status.innerText()).toContain("200");
    await agent.close();
  });
});

test("/docs of a service that needs no key asks for none", needs("chromium"), async () => {
  const api = await startNode(open);
  try {
    const { page } = await openDocs(api.url);
    expect(await page.locator("button.authorize").count()).toBe(0);
    await page.close();
  } finally {
    await api.close();
  }
});

async function openDocs(url: string): Promise<WatchedPage> {
  const watched = await openPage(browser);
  await watched.page.goto(`${url}/docs`);
  await watched.page.locator(".opblock").first().waitFor();
  return watched;
}
