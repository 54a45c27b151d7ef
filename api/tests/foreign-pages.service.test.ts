import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { openBrowser, openPage } from "../testing/browser.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { startNode } from "../testing/start-node.ts";
import { startWorker } from "../testing/start-worker.ts";

const token = "agent-token-0123456789";
const vars = {
  AIRLOCK_AGENT_TOKENS: token,
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_ALLOWED_HOSTS: "tools.example",
  AIRLOCK_JOB_TYPES: JSON.stringify({ science: { requirements: ["numpy==2.3.4"] } }),
};

interface Service {
  url: string;
  close(): Promise<void>;
}

let browser: Browser;
/** The server of another site. Its pages are empty. */
let elsewhere: Server;
beforeAll(async () => {
  browser = await openBrowser(["evil.example", "tools.example"]);
  elsewhere = createServer((_request, response) => {
    response.setHeader("Content-Type", "text/html").end("<!doctype html><title>Evil</title>");
  });
  await once(elsewhere.listen(0, "127.0.0.1"), "listening");
});
afterAll(async () => {
  await browser.close();
  elsewhere.close();
});

/** Opens a page of the other site under this name. */
async function foreignPage(name: string): Promise<Page> {
  const { page } = await openPage(browser);
  await page.goto(`http://${name}:${(elsewhere.address() as AddressInfo).port}/`);
  return page;
}

const withHost = (url: string, name: string): string => `http://${name}:${new URL(url).port}`;

describe.each<[string, (vars: Record<string, string>) => Promise<Service>]>([
  ["Node", startNode],
  ["workerd", startWorker],
])("without keys on %s", needs("chromium"), (_name, start) => {
  let api: Service;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    api = await start(vars);
  });
  afterAll(() => api.close());

  let jobId: string;
  beforeEach(async () => {
    agent = new ScriptedAgent(api.url, token);
    await agent.poll({ free_slots: 0 });
    const response = await fetch(`${api.url}/execute/async`, jsonRequest("POST", { code: "1" }));
    jobId = ((await response.json()) as { job_id: string }).job_id;
    return () => agent.close();
  });

  /** Endpoints that change state and need no body, so that any form can request them. */
  const targets = () => [
    `${api.url}/jobs/${jobId}/cancel`,
    `${api.url}/jobs/${jobId}/rerun`,
    `${api.url}/job-types/science/build`,
  ];

  async function read<T>(path: string): Promise<T> {
    return (await (await fetch(api.url + path)).json()) as T;
  }

  const count = async () => (await read<{ count: number }>("/executions?limit=1000")).count;

  /** Everything that the attacks try to change. */
  const state = async () => ({
    job: await read(`/jobs/${jobId}`),
    executions: await count(),
    build: (await fetch(`${api.url}/job-types/science/build`)).status,
  });

  /** Lets a page of another site send a request to each target; returns the statuses. */
  async function sendToEach(name: string, attack: string): Promise<number[]> {
    const statuses: number[] = [];
    for (const target of targets()) {
      const page = await foreignPage(name);
      const answered = page.waitForResponse(target);
      // If the page navigates to its target, `evaluate` fails because the page is gone.
      await Promise.all([
        answered,
        page
          .evaluate(`{ const target = ${JSON.stringify(target)}; ${attack} }`)
          .catch(() => undefined),
      ]);
      statuses.push((await answered).status());
      await page.context().close();
    }
    return statuses;
  }

  test.each([
    ["submits a form into a frame", submitForm("frame")],
    ["submits a form and goes there", submitForm("_self")],
    ["fetches without CORS", 'fetch(target, { method: "POST", mode: "no-cors" })'],
    ["sends a beacon", "navigator.sendBeacon(target)"],
  ])("a page of another site that %s changes nothing", async (_how, attack) => {
    for (const name of ["evil.example", "localhost"]) {
      const before = await state();
      const statuses = await sendToEach(name, attack);
      expect(await state()).toEqual({ ...before, build: 404 });
      expect(statuses).toEqual([403, 403, 403]);
    }
  });

  test("a page whose name now points at this machine can neither read nor run anything", async () => {
    const { page } = await openPage(browser);
    // Scripts of any page there would have the origin of the attacker's name.
    await page.goto(`${withHost(api.url, "evil.example")}/nowhere`);
    const before = await count();
    expect(await askFromPage(page)).toEqual([403, 403, 403, 403]);
    expect(await count()).toBe(before);
    await page.context().close();
  });

  test("the service's own page runs code, also under a name in allowed_hosts", async () => {
    for (const name of ["localhost", "127.0.0.1", "tools.example"]) {
      const { page } = await openPage(browser);
      await page.goto(`${withHost(api.url, name)}/console`);
      expect(await askFromPage(page)).toEqual([200, 200, 200, 202]);
      await page.context().close();
    }
  });

  test("a link on another site opens the service's page", async () => {
    const page = await foreignPage("evil.example");
    await page.evaluate(`location.assign("${withHost(api.url, "localhost")}/console")`);
    await page.getByRole("navigation").waitFor();
    expect(await page.title()).toContain("Airlock");
    await page.context().close();
  });
});

/** A script that submits an empty form to `target` and shows the answer in this frame. */
function submitForm(into: string): string {
  return `
    const frame = Object.assign(document.createElement("iframe"), { name: "frame" });
    const form = document.createElement("form");
    Object.assign(form, { method: "POST", action: target, target: "${into}" });
    document.body.append(frame, form);
    form.submit();`;
}

/** Fetches paths of a page's own origin, and returns the statuses. */
function askFromPage(page: Page): Promise<number[]> {
  return page.evaluate(async () => {
    const statuses: number[] = [];
    for (const path of ["/executions", "/health", "/openapi.json"]) {
      statuses.push((await fetch(path)).status);
    }
    const headers = { "Content-Type": "application/json" };
    const run = { method: "POST", headers, body: JSON.stringify({ code: "1" }) };
    statuses.push((await fetch("/execute/async", run)).status);
    return statuses;
  });
}
