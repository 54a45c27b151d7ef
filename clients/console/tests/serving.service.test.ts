import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openBrowser, openPage } from "../../../api/testing/browser.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import { startWorker } from "../../../api/testing/start-worker.ts";
import { needs } from "../../../scripts/testing/needs.ts";

const token = "agent-token-0123456789";
const key = "api-key-0123456789abcd";
const vars = {
  AIRLOCK_AGENT_TOKENS: token,
  AIRLOCK_API_AUTH_ENABLED: "true",
  AIRLOCK_API_KEYS: key,
};

let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser();
});
afterAll(() => browser.close());

interface Service {
  url: string;
  close(): Promise<void>;
}

describe.each<[string, (vars: Record<string, string>) => Promise<Service>]>([
  ["Node", startNode],
  ["workerd", startWorker],
])("the console on %s", needs("chromium"), (_name, start) => {
  let api: Service;
  beforeAll(async () => {
    api = await start(vars);
  });
  afterAll(() => api.close());

  test("browsers are redirected from / to it, programs get 404 as before", async () => {
    const asBrowser = { headers: { Accept: "text/html,*/*;q=0.8" }, redirect: "manual" } as const;
    const led = await fetch(`${api.url}/`, asBrowser);
    expect([led.status, led.headers.get("Location")]).toEqual([302, "/console"]);
    expect((await fetch(`${api.url}/`)).status).toBe(401);
    const withKey = await fetch(`${api.url}/`, { headers: { "X-API-Key": key } });
    expect(withKey.status).toBe(404);
    expect(await withKey.json()).toMatchObject({ code: "not_found" });
  });

  test("its page allows no script and no style but its own, and its files are kept for good", async () => {
    const page = await fetch(`${api.url}/console/executions/some-id`);
    expect(page.status).toBe(200);
    const policy = page.headers.get("Content-Security-Policy")!;
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self';");
    expect(policy).not.toContain("unsafe");
    const [script] = /\/console\/assets\/index-[\w-]+\.js/.exec(await page.text())!;
    const file = await fetch(api.url + script);
    expect(file.headers.get("Cache-Control")).toContain("immutable");
    expect(file.headers.get("Content-Type")).toContain("text/javascript");
    await file.body?.cancel();
    for (const name of ["none.js", "..%2Findex.html", "stamp"]) {
      expect((await fetch(`${api.url}/console/assets/${name}`)).status).not.toBe(200);
    }
  });

  test("it asks for the key, runs code, and requests nothing from elsewhere", async () => {
    const { page, requested, complaints } = await openPage(browser);
    await page.goto(api.url);
    const dialog = page.getByRole("dialog", { name: "API key" });
    await dialog.getByLabel("Key").fill("a-wrong-key-of-20-chars");
    await page.keyboard.press("Enter");
    await dialog.getByText("does not accept this key").waitFor();
    await page.keyboard.press("Escape");
    await dialog.getByLabel("Key").fill(key);
    await page.keyboard.press("Enter");
    await dialog.waitFor({ state: "detached" });

    const agent = new ScriptedAgent(api.url, token);
    await agent.poll();
    await page.getByRole("textbox", { name: "Python code" }).click();
    await page.keyboard.press("Control+a");
    await page.keyboard.type("print('from the console')");
    await page.keyboard.press("Control+Enter");
    const job = await agent.takeJob();
    expect(job.code).toBe("print('from the console')");
    await agent.result(job.lease_id, { stdout_base64: btoa("from the console\n") });
    const run = page.getByRole("region", { name: "Run", exact: true });
    await run.getByText("succeeded").waitFor();
    await run.getByText("from the console").waitFor();
    await agent.close();

    // A tab that a link opens has the key.
    for (const button of ["left", "middle"] as const) {
      const opened = page.waitForEvent("popup");
      const modifiers: "Control"[] = button === "left" ? ["Control"] : [];
      await page.getByRole("link", { name: "Executions" }).click({ button, modifiers });
      const another = await opened;
      await another.getByRole("cell", { name: "succeeded" }).waitFor();
      expect(await another.getByRole("dialog").count()).toBe(0);
      if (button === "middle")
        await another.getByRole("button", { name: "Forget the key" }).click();
      else await another.close();
    }
    await dialog.getByLabel("Key").fill(key);
    await page.keyboard.press("Enter");
    await dialog.waitFor({ state: "detached" });

    // Only the tabs have the key, and no address has it.
    const lasting = await page.evaluate("JSON.stringify(localStorage) + document.cookie");
    expect(lasting).not.toContain(key);
    expect(requested.filter((address) => !address.startsWith(`${api.url}/`))).toEqual([]);
    expect(requested.filter((address) => address.includes(key))).toEqual([]);
    expect(complaints.filter((complaint) => !complaint.includes("401"))).toEqual([]);
    await page.close();
  });

  test("no page of the origin but the console's own gets the key: not one that code wrote, nor one that asks a tab", async () => {
    const agent = new ScriptedAgent(api.url, token);
    await agent.poll();
    const send = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    const body = JSON.stringify({ code: "0" });
    const submitted = await fetch(`${api.url}/execute/async`, {
      method: "POST",
      headers: send,
      body,
    });
    const { job_id: id } = (await submitted.json()) as { job_id: string };
    const { lease_id } = await agent.takeJob();
    const written = {
      "drawing.svg": `<svg xmlns="http://www.w3.org/2000/svg"><script>document.title = "ran"</script></svg>`,
      "page.html": `<script>document.title = "ran"</script>`,
      "feed.xml": `<a><script xmlns="http://www.w3.org/1999/xhtml">document.title = "ran"</script></a>`,
    };
    for (const [name, text] of Object.entries(written)) await agent.upload(lease_id, name, text);
    await agent.result(lease_id);
    await agent.close();

    const { page } = await openPage(browser);
    const context = page.context();
    await page.goto(`${api.url}/docs`);
    await page.evaluate(`sessionStorage.setItem("airlock-key", "${key}")`);
    await page.goto(`${api.url}/console/executions/${id}`);

    // A person enters the picture's address in a new tab.
    const picture = await page.getByRole("img", { name: "drawing.svg" }).getAttribute("src");
    const entered = await context.newPage();
    await entered.goto(picture!);
    expect(await entered.evaluate("[document.title, origin]")).toEqual(["ran", "null"]);
    // … or that of a download.
    for (const name of Object.keys(written)) {
      const saved = page.waitForEvent("download");
      await page.getByRole("button", { name: `Download ${name}` }).click();
      const address = (await saved).url();
      expect(address).toMatch(/^blob:/);
      await expect(entered.goto(address)).rejects.toThrow("Download is starting");
    }

    // The console has answered what it answers before it reads `last`, from a second channel of its page.
    const asker = await context.newPage();
    await asker.goto(`${api.url}/docs`);
    await asker.evaluate(`
      globalThis.heard = [];
      globalThis.channels = ["airlock-key", "airlock-looks"].map((name) => {
        const channel = new BroadcastChannel(name);
        channel.onmessage = ({ data }) => heard.push(data);
        return channel;
      });`);
    await page.goto(`${api.url}/console/executions`);
    await page.getByRole("cell", { name: "succeeded" }).first().waitFor();
    await page.evaluate(`
      new BroadcastChannel("airlock-looks").postMessage("last");
      const channel = new BroadcastChannel("airlock-key");
      channel.onmessage = () => channel.postMessage("last");`);
    await asker.evaluate(`channels[0].postMessage({ wants: "another", than: "" })`);
    await expect.poll(() => asker.evaluate("heard")).toEqual(["last", "last"]);
    await context.close();
  });
});
