import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll } from "vitest";
import { openBrowser } from "../../api/testing/browser.ts";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";

export const token = "agent-token-0123456789";
export const patienceMs = 120_000;

/** A service with the console, a browser at it, and an agent that does what the test says. */
export interface ConsoleWorld {
  readonly url: string;
  readonly agent: ScriptedAgent;
  /** Opens a page; the script runs in it before its own. */
  open(path: string, script?: string): Promise<Page>;
  /** Queues code; answers with the job's id. */
  submit(code: string, fields?: object): Promise<string>;
  /** Submits code and begins to run it; answers with the job's id and its lease. */
  begin(code?: string, fields?: object): Promise<{ id: string; lease: string }>;
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
export function useConsole(...args: Parameters<typeof startConsole>): void {
  beforeAll(async () => {
    world = await startConsole(...args);
  });
  afterAll(() => world.close());
}

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
  const submit: ConsoleWorld["submit"] = async (code, fields = {}) => {
    const reply = await fetch(`${url}/execute/async`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code, ...fields }),
    });
    return ((await reply.json()) as { job_id: string }).job_id;
  };
  return {
    url,
    agent,
    async open(path, script = "") {
      const page = await context.newPage();
      await page.addInitScript(script);
      await page.goto(url + path);
      return page;
    },
    submit,
    async begin(code = "print('watched')", fields = {}) {
      const id = await submit(code, fields);
      const { lease_id: lease } = await agent.takeJob();
      await agent.post(lease, "started", { job_ref: null });
      return { id, lease };
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
