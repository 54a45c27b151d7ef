import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { openBrowser } from "../../../api/testing/browser.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { startNodeIn } from "../../../api/testing/start-node.ts";
import { OperatorError, runMain, say } from "../../operate/command.ts";
import { buildConsole } from "../../setup/build-console.ts";
import { fillHistory } from "../../testing/fill-history.ts";
import { loadNow } from "./results.ts";

const executions = 100_000;
const outputBytes = 1 << 20;
const pieceBytes = 1 << 15;
const mostPaintMs = 1000;
const mostTaskMs = 100;
const token = "agent-token-0123456789";

/** What the browser itself says: times of paints, and tasks that blocked the page for more than 50 ms. */
const watch = `
  globalThis.tasks = [];
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) tasks.push(duration);
  }).observe({ type: "longtask", buffered: true });
`;
const figures = `({
  paintMs: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
  taskMs: Math.max(0, ...tasks),
})`;

interface Figures {
  paintMs: number;
  taskMs: number;
}

/** Measures the console's own promises, in a database with much history and with much output. */
await runMain(async () => {
  await buildConsole();
  const folder = mkdtempSync(join(tmpdir(), "airlock-measure-"));
  const browser = await openBrowser();
  try {
    await fillHistory(folder, executions);
    const api = await startNodeIn(folder, {
      AIRLOCK_AGENT_TOKENS: token,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    });
    try {
      await measure(browser, api.url);
    } finally {
      await api.close();
    }
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true });
  }
});

async function measure(browser: Browser, url: string): Promise<void> {
  const agent = new ScriptedAgent(url, token);
  await agent.poll();
  const load = loadNow();
  say(`load average ${load.perMinute.toFixed(2)}${load.isHigh ? ": THE MACHINE IS BUSY" : ""}`);
  say("page                              first paint   longest task");
  let isGood = true;
  const row = async (name: string, path: string, act: (page: Page) => Promise<unknown>) => {
    const page = await browser.newPage();
    await page.addInitScript(watch);
    await page.goto(`${url}/console${path}`);
    await act(page);
    const { paintMs, taskMs } = await page.evaluate<Figures>(figures);
    await page.close();
    isGood &&= paintMs <= mostPaintMs && taskMs <= mostTaskMs;
    const task = taskMs === 0 ? "under 50 ms" : `${taskMs.toFixed(0)} ms`;
    say(`${name.padEnd(32)} ${`${paintMs.toFixed(0)} ms`.padStart(12)} ${task.padStart(14)}`);
  };
  await row("playground", "", (page) =>
    page.getByRole("textbox", { name: "Python code" }).waitFor(),
  );
  await row("executions, three pages", "/executions", async (page) => {
    await page.getByRole("cell", { name: "succeeded" }).first().waitFor();
    for (let i = 0; i < 3; i++) {
      const first = await page.getByRole("row").nth(1).innerText();
      await page.getByRole("link", { name: "Older" }).click();
      await page.getByRole("row", { name: first, exact: true }).waitFor({ state: "detached" });
    }
  });
  await row("executions, failed", "/executions?status=failed", (page) =>
    page.getByRole("cell", { name: "failed" }).first().waitFor(),
  );
  for (const path of ["/queue", "/job-types", "/dead-letters", "/webhooks", "/health"]) {
    await row(path.slice(1), path, (page) => page.waitForLoadState("networkidle"));
  }

  const submit = async (): Promise<string> => {
    const body = JSON.stringify({ code: "print('much')" });
    const headers = { "Content-Type": "application/json" };
    const reply = await fetch(`${url}/execute/async`, { method: "POST", headers, body });
    return ((await reply.json()) as { job_id: string }).job_id;
  };
  const line = "\u001b[32mline\u001b[0m of a long output with some words in it\n";
  const text = line.repeat(Math.ceil(outputBytes / line.length)).slice(0, outputBytes);
  const id = await submit();
  const { lease_id: lease } = await agent.takeJob();
  await row("1 MiB of output as it comes", `/executions/${id}`, async (page) => {
    await page.getByText("No output yet.").waitFor();
    for (let offset = 0; offset < text.length; offset += pieceBytes) {
      const piece = Buffer.from(text.slice(offset, offset + pieceBytes)).toString("base64");
      await agent.post(lease, "logs", {
        parts: [{ stream: "stdout", offset, data_base64: piece }],
      });
    }
    await agent.result(lease, { stdout_base64: Buffer.from(text).toString("base64") });
    await page.getByText("succeeded").first().waitFor();
  });
  await row("1 MiB of output: end and find", `/executions/${id}`, async (page) => {
    const shown = page.getByRole("region", { name: "Output, text" });
    await shown.getByText("line").first().waitFor();
    await shown.press("End");
    await page.getByRole("searchbox", { name: "Find in output" }).pressSequentially("words");
    await page.getByText(/^1 of [\d,]+$/).waitFor();
    await page.getByRole("searchbox", { name: "Find in output" }).press("Enter");
    await page.getByText(/^2 of [\d,]+$/).waitFor();
  });
  if (!isGood) {
    throw new OperatorError(
      `a page painted later than ${mostPaintMs} ms, or a task took more than ${mostTaskMs} ms`,
    );
  }
}
