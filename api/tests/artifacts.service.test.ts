import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { openBrowser, openPage } from "../testing/browser.ts";
import { agentTokens, Api, servers } from "../testing/contract/api.ts";
import { ScriptedAgent, sha256 } from "../testing/scripted-agent.ts";
import { type NodeProcess, startNode, startNodeIn } from "../testing/start-node.ts";
import { startWorker } from "../testing/start-worker.ts";

describe("node upload", () => {
  const folder = tempFolder();
  let service: NodeProcess;
  let api: Api;
  // The last row kills it and starts it again.
  beforeAll(() => start());
  afterAll(() => service.close());

  async function start(): Promise<void> {
    service = await startNodeIn(folder, servers.open);
    api = new Api(service.url);
  }

  const content = "whole".repeat(1000);

  /** Opens a connection and sends the first bytes of an upload. */
  async function begunUpload(leaseId: string): Promise<Socket> {
    const { hostname, port } = new URL(service.url);
    const socket = connect(Number(port), hostname);
    await once(socket, "connect");
    socket.on("error", () => {});
    const head = [
      `PUT /agent/v1/leases/${leaseId}/artifacts/a.txt HTTP/1.1`,
      `Host: ${hostname}`,
      `Authorization: Bearer ${agentTokens[0]}`,
      `Content-Length: ${content.length}`,
      `X-Airlock-SHA256: ${await sha256(new TextEncoder().encode(content))}`,
    ];
    socket.write(`${head.join("\r\n")}\r\n\r\n${content.slice(0, 100)}`);
    return socket;
  }

  /** Ends the lease with another artifact, and checks that only that one is visible. */
  async function endWithAnother(
    agent: ScriptedAgent,
    leaseId: string,
    jobId: string,
  ): Promise<void> {
    expect((await agent.upload(leaseId, "b.txt", "b")).status).toBe(200);
    expect((await agent.result(leaseId)).status).toBe(200);
    expect((await api.record(jobId)).artifacts).toMatchObject([{ name: "b.txt" }]);
  }

  test("an upload whose connection dies is never visible", async () => {
    const { job_id } = await api.submit();
    const agent = api.agent();
    const { lease_id } = await agent.takeJob();
    const socket = await begunUpload(lease_id);
    socket.destroy();
    await endWithAnother(agent, lease_id, job_id);
    expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).status).toBe(404);
  });

  test("an upload that never ends blocks nothing, and is never visible", async () => {
    const { job_id } = await api.submit();
    const agent = api.agent();
    const { lease_id } = await agent.takeJob();
    const socket = await begunUpload(lease_id);
    await endWithAnother(agent, lease_id, job_id);
    socket.end(content.slice(100));
    await once(socket.resume(), "close");
    expect((await api.record(job_id)).artifacts).toMatchObject([{ name: "b.txt" }]);
  });

  test("an upload cut by kill -9 is never visible; repeated after the restart, it is", async () => {
    const { job_id } = await api.submit();
    const before = api.agent();
    const { lease_id } = await before.takeJob();
    await begunUpload(lease_id);
    expect((await before.upload(lease_id, "b.txt", "b")).status).toBe(200);
    await service.close();
    await start();
    const agent = api.agent();
    expect((await agent.upload(lease_id, "a.txt", content)).status).toBe(200);
    expect((await agent.upload(lease_id, "b.txt", "b")).status).toBe(200);
    expect((await agent.result(lease_id)).status).toBe(200);
    expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).text).toBe(content);
  });
});

describe("hostile artifacts", () => {
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
});
