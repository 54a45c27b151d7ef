import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import type { Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll } from "vitest";
import { openBrowser } from "../../api/testing/browser.ts";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";
import type { LeasedJob, ResultReport } from "../../shared/wire/leases.ts";

export const token = "agent-token-0123456789";
export const patienceMs = 120_000;

/** A service with the console, a browser at it, and an agent that does what the test says. */
interface ConsoleWorld {
  readonly url: string;
  readonly agent: ScriptedAgent;
  /** Opens a page; the script runs in it before its own. It is closed at the end of the test. */
  open(path: string, script?: string): Promise<Page>;
  /** Opens a page and waits until it has all that it asks for. */
  openWhole(path: string, width?: number): Promise<Page>;
  /** What the service answers, as JSON. With a body the request is a POST. */
  ask<Answer>(path: string, body?: object): Promise<Answer>;
  /** Queues code; answers with the job's id. */
  submit(code: string, fields?: object): Promise<string>;
  /** Submits code and begins to run it; answers with the job's id and its lease. */
  begin(code?: string, fields?: object): Promise<{ id: string; lease: string }>;
  /** Ends the next job. */
  finish(result?: Partial<ResultReport>): Promise<LeasedJob>;
  /** Submits code and ends it; answers with the job's id. */
  run(code: string, result?: Partial<ResultReport>, fields?: object): Promise<string>;
  closePages(): Promise<void>;
  /** Ends the service as a power cut does. */
  stopService(): Promise<void>;
  /** Starts it again, at its address. */
  startService(): Promise<void>;
  /** Stops the process of the service, which then takes connections and answers nothing. */
  freezeService(): void;
  thawService(): void;
  close(): Promise<void>;
}

/** The console of the tests that run. */
export let world: ConsoleWorld;

/** Starts a console for all tests of a file or a suite together. */
export function useConsole(
  vars: Record<string, string> | (() => Record<string, string>) = {},
  fill?: Parameters<typeof startConsole>[1],
): void {
  beforeAll(async () => {
    world = await startConsole(typeof vars === "function" ? vars() : vars, fill);
  });
  afterEach(() => world.closePages());
  afterAll(() => world.close());
}

/** The result of code that raised an error. */
export const failedWith = (
  type: NonNullable<ResultReport["error"]>["type"],
  message: string,
  more: Partial<ResultReport> = {},
): Partial<ResultReport> => ({
  status: "failed",
  exit_code: 1,
  error: { type, message, phase: "execution" },
  ...more,
});

export const cancelled: Partial<ResultReport> = {
  status: "cancelled",
  exit_code: null,
  error: { type: "cancelled", message: "cancelled", phase: "execution" },
};

export const editorOf = (page: Page): Locator => page.getByRole("textbox", { name: "Python code" });

/** Types code in place of what the playground's editor has. */
export async function typeCode(page: Page, code: string, editor = editorOf(page)): Promise<void> {
  await editor.click();
  await page.keyboard.press("Control+a");
  await page.keyboard.type(code);
}

/** The row of a list that names an execution or a session. */
export const rowOf = (page: Page, id: string): Locator =>
  page.getByRole("row").filter({ has: page.getByTitle(id) });

/** The note that the service does not answer. */
export const lostNote = (page: Page): Locator =>
  page.getByText("The service has not answered since");

/** What axe finds on a page. */
export async function faultsOf(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page })
    .options({ resultTypes: ["violations"] })
    .analyze();
  return violations.map(({ id, nodes }) => `${page.url()} ${id} ${nodes[0]?.html}`);
}

/** By how many pixels something is wider than its page. */
export const overhangOf = (page: Page): Promise<number> =>
  page.evaluate<number>("document.documentElement.scrollWidth - innerWidth");

/**
 * @param fill Puts something into the data folder before the service starts.
 */
export async function startConsole(
  vars: Record<string, string> = {},
  fill: (folder: string) => Promise<void> = async () => {},
): Promise<ConsoleWorld> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-console-"));
  await fill(folder);
  const all = {
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    // The agent polls only when a test makes it.
    AIRLOCK_LIVENESS_S: "3600",
    AIRLOCK_LEASE_TTL_S: "3600",
    ...vars,
  };
  let api: NodeProcess = await startNodeIn(folder, all);
  const { url } = api;
  const browser = await openBrowser();
  const context = await browser.newContext();
  context.setDefaultTimeout(patienceMs);
  const agent = new ScriptedAgent(url, token);
  await agent.poll();
  const ask = async <Answer>(path: string, body?: object): Promise<Answer> => {
    const headers = { "Content-Type": "application/json" };
    const init = body && { method: "POST", headers, body: JSON.stringify(body) };
    return (await fetch(url + path, init)).json() as Promise<Answer>;
  };
  const submit: ConsoleWorld["submit"] = async (code, fields = {}) =>
    (await ask<{ job_id: string }>("/execute/async", { code, ...fields })).job_id;
  const open: ConsoleWorld["open"] = async (path, script = "") => {
    const page = await context.newPage();
    await page.addInitScript(script);
    await page.goto(url + path);
    return page;
  };
  const finish: ConsoleWorld["finish"] = async (result) => {
    const job = await agent.takeJob();
    await agent.result(job.lease_id, result);
    return job;
  };
  return {
    url,
    agent,
    open,
    async openWhole(path, width) {
      const page = await open(path);
      if (width !== undefined) await page.setViewportSize({ width, height: 800 });
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.waitForLoadState("networkidle");
      return page;
    },
    ask,
    submit,
    async begin(code = "print('watched')", fields = {}) {
      const id = await submit(code, fields);
      const { lease_id: lease } = await agent.takeJob();
      await agent.post(lease, "started", { job_ref: null });
      return { id, lease };
    },
    finish,
    async run(code, result, fields) {
      const id = await submit(code, fields);
      await finish(result);
      return id;
    },
    async closePages() {
      await Promise.all(context.pages().map((page) => page.close()));
    },
    stopService: () => api.close(),
    freezeService: () => void api.child.kill("SIGSTOP"),
    thawService: () => void api.child.kill("SIGCONT"),
    async startService() {
      api = await startNodeIn(folder, { ...all, AIRLOCK_PORT: new URL(url).port });
    },
    async close() {
      await browser.close();
      await api.close();
      rmSync(folder, { recursive: true });
    },
  };
}
