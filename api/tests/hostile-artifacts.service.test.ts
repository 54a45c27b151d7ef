import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { openBrowser, openPage } from "../testing/browser.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { startNode } from "../testing/start-node.ts";
import { startWorker } from "../testing/start-worker.ts";
import { jsonRequest } from "../../scripts/command/json-request.ts";

const token = "agent-token-0123456789";
const vars = {
  AIRLOCK_AGENT_TOKENS: token,
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  // Browsers send no Sec-Fetch headers to such a host over plain HTTP.
  AIRLOCK_ALLOWED_HOSTS: "tools.example",
};

const files = {
  "a.js": "globalThis.taken = true; self.postMessage?.('taken', '*');",
  "a.mjs": "globalThis.taken = true; export default 1;",
  "a.css": "body { --taken: yes }",
  "a.html": "<script>document.title = 'taken'</script>",
};

let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser(["tools.example"]);
});
afterAll(() => browser.close());

describe.each<[string, typeof startNode | typeof startWorker]>([
  ["Node", startNode],
  ["workerd", startWorker],
])("a page of the console's origin on %s", needs("chromium"), (_name, start) => {
  let api: { url: string; close(): Promise<void> };
  let folder: string;
  beforeAll(async () => {
    api = await start(vars);
    const agent = new ScriptedAgent(api.url, token);
    await agent.poll({ free_slots: 0 });
    const submitted = await fetch(`${api.url}/execute/async`, jsonRequest("POST", { code: "1" }));
    const { job_id } = (await submitted.json()) as { job_id: string };
    const { lease_id } = await agent.takeJob();
    for (const [name, text] of Object.entries(files)) await agent.upload(lease_id, name, text);
    await agent.result(lease_id);
    await agent.close();
    folder = `/jobs/${job_id}/artifacts`;
  });
  afterAll(() => api.close());

  test.each(["localhost", "tools.example"])(
    "at %s cannot use an artifact as script, style, worker or page, and can read it",
    async (host) => {
      const { page } = await openPage(browser);
      const url = `http://${host}:${new URL(api.url).port}/console`;
      await page.goto(url);
      expect(await page.evaluate(attacks(folder))).toEqual({
        taken: false,
        style: "",
        worker: "refused",
        imported: "refused",
        service: "refused",
        read: files["a.css"],
      });
      const saved = page.waitForEvent("download");
      await page.evaluate(`location.assign("${folder}/a.html")`);
      expect((await saved).suggestedFilename()).toBe("a.html");
      expect(page.url()).toBe(url);
      await page.close();
    },
  );
});

/** Tries every way to run the files of a folder in a page; returns what had an effect. */
const attacks = (folder: string): string => `(async () => {
  const added = (tag, fields) => new Promise((resolve) => {
    const element = Object.assign(document.createElement(tag), fields);
    element.onload = element.onerror = resolve;
    document.body.append(element);
  });
  const told = (promise) => promise.then(() => "taken", () => "refused");
  const from = "${folder}";
  await added("script", { src: from + "/a.js" });
  await added("script", { src: from + "/a.mjs", type: "module" });
  await added("link", { href: from + "/a.css", rel: "stylesheet" });
  const worker = new Promise((resolve, reject) => {
    const made = new Worker(from + "/a.js");
    made.onmessage = resolve;
    made.onerror = reject;
  });
  return {
    taken: globalThis.taken ?? false,
    style: getComputedStyle(document.body).getPropertyValue("--taken"),
    worker: await told(worker),
    imported: await told(import(from + "/a.mjs")),
    service: await told(Promise.resolve().then(() => navigator.serviceWorker.register(from + "/a.js"))),
    read: await (await fetch(from + "/a.css")).text(),
  };
})()`;
