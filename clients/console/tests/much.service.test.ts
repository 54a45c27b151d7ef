import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fillHistory } from "../../../scripts/console/fill-history.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { type ConsoleWorld, startConsole } from "./testing/console-world.ts";

const executions = 100_000;
/** As many as a page of the list can have. */
const many = 1000;
const code = "def mean(values):\n    return sum(values) / len(values)\nmean([])\n";

describe(`the console with ${executions} executions`, needs("chromium"), () => {
  let world: ConsoleWorld;
  beforeAll(async () => {
    world = await startConsole({ AIRLOCK_MAX_QUEUE_SIZE: String(2 * many) }, (folder) =>
      fillHistory(folder, executions),
    );
  });
  afterAll(() => world.close());

  async function fail(submit: () => Promise<unknown>): Promise<string> {
    await submit();
    const job = await world.agent.takeJob();
    await world.agent.result(job.lease_id, {
      status: "failed",
      exit_code: 1,
      error: { type: "division_error", message: "ZeroDivisionError", phase: "execution" },
    });
    return job.execution_id;
  }

  test("pages of the list follow each other, and lead back to the newest", async () => {
    const page = await world.open("/console/executions");
    const last = (n: number) => page.getByTitle(`-${String(n).padStart(12, "0")}`);
    await last(executions - 1).waitFor();
    expect(await page.getByRole("row").count()).toBe(51);
    await page.getByRole("link", { name: "Older" }).click();
    await last(executions - 51).waitFor();
    expect(await last(executions - 50).count()).toBe(0);
    await page.getByRole("link", { name: "Newest" }).click();
    await last(executions - 1).waitFor();
    await page.close();
  });

  test("rows stay in their places while others come, and Back returns to the same place", async () => {
    const page = await world.open("/console/executions");
    const first = page.getByRole("row").nth(1).locator("a.id");
    const top = (await first.getAttribute("title"))!;
    await page.getByText("more than 1,000 in all").waitFor();
    const newer = await world.submit("'newer'");
    const fresh = page.getByRole("button", { name: "1 new" });
    await fresh.waitFor();
    expect(await first.getAttribute("title")).toBe(top);
    const link = page.getByRole("row").nth(40).locator("a.id");
    const followed = (await link.getAttribute("title"))!;
    await link.focus();
    const scrolled = await page.evaluate<number>("scrollY");
    expect(scrolled).toBeGreaterThan(100);
    await page.keyboard.press("Enter");
    await page.waitForURL(new RegExp(followed));
    await page.getByRole("region", { name: "Timeline" }).waitFor();
    await page.goBack();
    const focused = () => page.evaluate<string>("document.activeElement.title");
    await expect.poll(focused).toBe(followed);
    expect(await page.evaluate<number>("scrollY")).toBe(scrolled);
    expect(await first.getAttribute("title")).toBe(top);
    await fresh.click();
    await page.getByTitle(newer).waitFor();
    expect(await page.evaluate<string>("document.activeElement.tagName")).toBe("H1");
    await fresh.waitFor({ state: "detached" });
    await fetch(`${world.url}/jobs/${newer}/cancel`, { method: "POST" });
    await page.close();
  });

  test("executions are found by several statuses, a text in the error, a time, and the short id", async () => {
    const page = await world.open("/console/executions");
    await page.getByLabel("Status").selectOption("failed, timeout or oom");
    await page.waitForURL(/status=failed&status=timeout&status=oom/);
    const search = page.getByRole("searchbox", { name: "Id, metadata or error" });
    await search.fill("valueerror: X");
    await page.keyboard.press("Enter");
    await page.waitForURL(/error=/);
    await page.getByText("more than 1,000 in all").waitFor();
    await page.getByLabel("Submitted").selectOption("between two times");
    await page.getByLabel("Until").fill("2001-02-03T04:05");
    await page.waitForURL(/created_before=2001-/);
    await page.getByText("No execution matches.").waitFor();
    await page.getByLabel("Submitted").selectOption("any time");
    await page.getByRole("button", { name: "Without error: valueerror: X" }).click();
    await page.waitForURL((url) => !/error=|created/.test(url.search));
    await search.fill(`…${String(executions - 3).padStart(8, "0")}`);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Execution …" }).waitFor();
    expect(page.url()).toMatch(new RegExp(`/executions/[0-9a-f-]+${executions - 3}$`));
    await page.close();
  });

  test("of 1 MiB of output, only the rows in view exist", async () => {
    const id = await world.submit("print('much')");
    const job = await world.agent.takeJob();
    const lines = Array.from({ length: 30_000 }, (_, i) => `line ${i} of a long output, indeed`);
    await world.agent.result(job.lease_id, {
      stdout_base64: btoa(`${lines.join("\n")}\n`.slice(0, 1 << 20)),
    });
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("line 3 of a long output").waitFor();
    await page.getByRole("searchbox", { name: "Find in output" }).fill("line 28000 ");
    await page.getByText("1 of 1", { exact: true }).waitFor();
    await page.locator("mark").first().waitFor();
    expect(await page.locator("mark").first().innerText()).toBe("line 28000 ");
    expect(await page.getByText(/^line \d+ of a long/).count()).toBeLessThan(200);
    await page.getByRole("searchbox", { name: "Find in output" }).fill("line 2800");
    await page.getByRole("button", { name: "Next match" }).click();
    await page.getByText("2 of 11", { exact: true }).waitFor();
    await page.close();
  });

  test("a failed job is found by filters, forked and run again", async () => {
    const parent = await fail(() => world.submit(code, { metadata: { order: "4711" } }));
    const child = await fail(() =>
      fetch(`${world.url}/jobs/${parent}/fork`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ code: `${code}print('forked')\n`, metadata: { order: "4712" } }),
      }),
    );
    const page = await world.open("/console/executions");
    await page.getByLabel("Status").selectOption("failed");
    await page.getByRole("cell", { name: "ValueError: x" }).first().waitFor();
    await page.getByRole("searchbox", { name: "Id, metadata or error" }).fill("order:4712");
    await page.keyboard.press("Enter");
    await page.getByRole("row").nth(2).waitFor({ state: "detached" });
    // Anywhere in its row.
    await page.getByRole("cell", { name: "ZeroDivisionError" }).click();
    await page.waitForURL(new RegExp(child));
    const about = page.getByRole("region", { name: "Parent and children" });
    await about.getByText("Fork of").getByText("failed").waitFor();
    await page.getByRole("button", { name: "Rerun" }).click();
    const rerun = await world.agent.takeJob();
    await world.agent.result(rerun.lease_id);
    await page.getByText("Rerun of").waitFor();
    await page.getByRole("link", { name: "Fork" }).click();
    await page.getByRole("textbox", { name: "Python code" }).getByText("print('forked')").click();
    await page.keyboard.press("Control+Enter");
    const fork = await world.agent.takeJob();
    expect(fork.code).toBe(`${code}print('forked')\n`);
    await world.agent.result(fork.lease_id);
    await page.getByText("succeeded").waitFor();
    await page.close();
  });

  test("the oldest of many waiting jobs are grouped by what they wait for, with the reason", async () => {
    const oldest = await world.submit("0");
    const jobs = Array.from({ length: many }, () => ({ code: "1" }));
    const batch = await fetch(`${world.url}/execute/batch`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ jobs }),
    });
    expect(batch.status).toBe(202);
    const { batch_id: id } = (await batch.json()) as { batch_id: string };
    const page = await world.open("/console/queue");
    await page.getByText(/^The oldest 100 of 1,001\./).waitFor();
    // Jobs that wait for the same are one row.
    const row = page.getByRole("row").filter({ has: page.getByTitle(oldest) });
    await row.getByRole("cell", { name: "100", exact: true }).waitFor();
    await row.getByRole("cell", { name: "Waiting for a worker, at position 1." }).waitFor();
    await page.close();
    await fetch(`${world.url}/batches/${id}/cancel`, { method: "POST" });
    await fetch(`${world.url}/jobs/${oldest}/cancel`, { method: "POST" });
  });

  test("the next page keeps every filter, also two of metadata, and one of them can be taken away", async () => {
    const metadata = { order: "4713", step: "load" };
    const oldest = await world.submit("0", { metadata });
    const other = await world.submit("0", { metadata: { order: "4713" } });
    await Promise.all(Array.from({ length: 50 }, () => world.submit("1", { metadata })));
    const page = await world.open("/console/executions?metadata=order:4713&metadata=step:load");
    await page.getByRole("link", { name: "Older" }).click();
    await page.getByTitle(oldest).waitFor();
    expect(await page.getByTitle(other).count()).toBe(0);
    await page.getByRole("button", { name: "Without step: load" }).click();
    await page.getByRole("link", { name: "Older" }).click();
    await page.getByTitle(other).waitFor();
    await page.close();
  });
});
