import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { dockerError, log, release } from "../../../api/testing/contract/api.ts";
import type { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import {
  cancelled,
  editorOf,
  faultsOf,
  failedWith,
  lostNote,
  patienceMs,
  useConsole,
  world,
} from "../../testing/console-world.ts";

const failing = "def mean(values):\n    return sum(values) / len(values)\nmean([])\n";
const traceback =
  'Traceback (most recent call last):\n  File "/code/main.py", line 3, in <module>\n  File "/code/main.py", line 2, in mean\nZeroDivisionError: division by zero\n';

/** In every colour that a terminal has. */
const palette = Array.from({ length: 256 }, (_, n) => `\u001b[38;5;${n}m${n}\u001b[0m `).join("");

describe("the console's views", needs("chromium"), () => {
  let agent: ScriptedAgent;
  let failed: string;
  useConsole();
  beforeAll(async () => {
    agent = world.agent;
    const result = failedWith("division_error", "ZeroDivisionError: division by zero", {
      stdout_base64: btoa(`\u001b[32mgreen\u001b[0m\n${palette}\n`),
      stderr_base64: btoa(traceback),
    });
    failed = await world.run(failing, result, { metadata: { order: "4711" } });
  });

  async function drop(page: Page, name: string, text: string): Promise<void> {
    const file = `new File([${JSON.stringify(text)}], ${JSON.stringify(name)})`;
    const data = await page.evaluateHandle(
      `(() => { const data = new DataTransfer(); data.items.add(${file}); return data; })()`,
    );
    await page.dispatchEvent("main", "dragover", { dataTransfer: data });
    await page.dispatchEvent("main", "drop", { dataTransfer: data });
  }

  test("a failed execution is found by its metadata, shows its error, and is forked", async () => {
    const page = await world.open("/console/executions");
    await page.getByRole("searchbox", { name: "Id, metadata or error" }).fill("order:4711");
    await page.keyboard.press("Enter");
    await page.waitForURL(/metadata=order%3A4711/);
    await page.getByRole("cell", { name: "failed" }).first().waitFor();
    await page.getByTitle(failed).click();
    await page.getByRole("alert").getByText("division by zero").waitFor();
    await page.getByText("green", { exact: true }).waitFor();
    // The innermost line of the submitted code.
    const marked = page.getByTitle("The error was raised here");
    expect(await marked.innerText()).toContain("return sum(values)");
    expect(await page.evaluate<number>("scrollY")).toBe(0);

    await page.getByRole("link", { name: "Fork" }).click();
    await editorOf(page).getByText("mean([])").click();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("print('new')");
    await editorOf(page).getByText("print('new')").waitFor();
    await page.keyboard.press("Control+Enter");
    const job = await world.finish({ stdout_base64: btoa("new\n") });
    expect(job.code).toBe(`${failing}print('new')`);
    await page.getByText("succeeded").waitFor();
    await page.getByTitle(job.execution_id).click();
    await page.getByText("Fork of").waitFor();
  });

  test("a dropped file, arguments, stdin and the time limit reach the job, its call as a command, and its fork", async () => {
    const page = await world.open("/console");
    await editorOf(page).waitFor();
    await drop(page, "prices.csv", "tea,3\n");
    await drop(page, "too-much.csv", "1\n");
    const files = page.getByRole("region", { name: "Files", exact: true });
    await files.getByText("/input/prices.csv").waitFor();
    await files.getByText("6 B").waitFor();
    await files.getByRole("button", { name: "Remove too-much.csv" }).click();
    await files.getByText("too-much.csv").waitFor({ state: "detached" });
    const focused = () => page.evaluate("document.activeElement.textContent");
    await expect.poll(focused).toBe("Add files");
    await page.getByRole("textbox", { name: "Arguments" }).fill("--sum 'a b'");
    await page.getByRole("textbox", { name: "Standard input" }).fill("1\n2\n");
    await page.getByRole("spinbutton", { name: "Time limit, s" }).fill("90");
    await page.getByText("The same as a command").click();
    const program = page.getByLabel("Program", { exact: true });
    for (const part of ["prices.csv", "file_id", "--sum", "a b", String.raw`1\n2\n`]) {
      await program.getByText(part).waitFor();
    }
    await page.getByRole("button", { name: "Run", exact: false }).first().click();
    const job = await world.finish({ stdout_base64: btoa("3\n") });
    const given = { files: [{ name: "prices.csv" }], timeout_s: 90 };
    expect(job).toMatchObject({ args: ["--sum", "a b"], ...given });

    const shown = await world.open(`/console/executions/${job.execution_id}`);
    await shown.getByRole("region", { name: "Input files" }).getByText("prices.csv").click();
    await shown.getByRole("cell", { name: "tea" }).or(shown.getByText("tea")).first().waitFor();
    await shown.getByText("The call that made it").click();
    await shown.getByLabel("Program", { exact: true }).getByText("/execute/async").waitFor();
    await shown.getByText("Correlation id").waitFor();
    await shown.getByRole("link", { name: "Fork" }).click();
    await shown
      .getByRole("region", { name: "Files", exact: true })
      .getByText("prices.csv")
      .waitFor();
    await expect
      .poll(() => shown.getByRole("textbox", { name: "Arguments" }).inputValue())
      .toBe("--sum 'a b'");
    const limit = shown.getByRole("spinbutton", { name: "Time limit, s" });
    expect(await limit.getAttribute("placeholder")).toBe("90");
    await shown.getByRole("textbox", { name: "Arguments" }).fill("--mean");
    await shown.keyboard.press("Control+Enter");
    expect(await world.finish()).toMatchObject({ args: ["--mean"], ...given });
  });

  test("a running job is stopped from the playground", async () => {
    const page = await world.open("/console");
    await editorOf(page).waitFor();
    await page.getByRole("button", { name: "Run", exact: false }).first().click();
    const job = await agent.takeJob();
    await agent.post(job.lease_id, "started", { job_ref: null });
    await page.getByRole("button", { name: "Stop" }).click();
    const stopped = () => world.ask(`/jobs/${job.execution_id}`);
    await expect.poll(stopped, { timeout: patienceMs }).toMatchObject({ cancel_requested: true });
    await agent.result(job.lease_id, cancelled);
    await page.getByText("cancelled", { exact: true }).first().waitFor();
  });

  test("the output of a run that is watched can show when each line was written", async () => {
    const { id, lease } = await world.begin();
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("No output yet.").waitFor();
    expect(await page.getByRole("checkbox", { name: "Times" }).count()).toBe(0);
    await agent.post(lease, "logs", { parts: [log(0, "watched\n")] });
    await page.getByRole("checkbox", { name: "Times" }).check();
    const time = page.locator(".output-time");
    expect(await time.innerText()).toMatch(/^\d+(\.\d)? (ms|s|min)/);
    await agent.result(lease, { stdout_base64: btoa("watched\n") });
    await page.getByText("succeeded").waitFor();
    expect(await time.count()).toBe(1);
  });

  test("an execution that lost an attempt shows it while it waits, and every attempt when it has ended", async () => {
    const { id, lease } = await world.begin("print('twice')");
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("No output yet.").waitFor();
    const attempts = page.getByRole("region", { name: "Attempts" });
    expect(await attempts.count()).toBe(0);
    await release(agent, lease);
    const why = `given back by the agent, while its code ran: ${dockerError.message}`;
    await attempts.getByRole("cell", { name: why }).waitFor();
    const { lease_id } = await agent.takeJob();
    await attempts.getByRole("cell", { name: "running" }).waitFor();
    await agent.result(lease_id);
    await attempts.getByRole("cell", { name: "succeeded" }).waitFor();
    expect(await attempts.getByRole("cell", { name: "scripted" }).count()).toBe(2);
    expect(await faultsOf(page)).toEqual([]);
  });

  test("when a job ends, no button takes the place of another one that was about to be clicked", async () => {
    const { id, lease } = await world.begin("1");
    const shown = await world.open(`/console/executions/${id}`);
    const tried = await world.open(`/console?job=${id}`);
    await shown.getByRole("button", { name: "Cancel" }).waitFor();
    const [stop, run] = ["Stop", "Run Ctrl ⏎"].map((name) => tried.getByRole("button", { name }));
    await expect.poll(() => stop!.isEnabled(), { timeout: patienceMs }).toBe(true);
    const placed = [
      shown.getByRole("link", { name: "Fork", exact: true }),
      shown.getByRole("button", { name: "Rerun" }),
      stop!,
      run!,
    ];
    const places = (): Promise<unknown> => Promise.all(placed.map((one) => one.boundingBox()));
    const before = await places();
    await agent.result(lease);
    await shown.getByRole("button", { name: "Cancel" }).waitFor({ state: "detached" });
    await expect.poll(() => run!.isEnabled(), { timeout: patienceMs }).toBe(true);
    expect(await places()).toEqual(before);
  });

  test("a removed dead letter stays in its place, so that a second click does not hit another one", async () => {
    const page = await world.open("/console/dead-letters");
    await page.getByRole("link", { name: "division_error" }).click();
    await page.waitForURL(/error_type=division_error/);
    const { total } = await world.ask<{ total: number }>("/dlq/stats");
    const { items } = await world.ask<{ items: { job_id: string }[] }>(
      "/dlq?error_type=division_error",
    );
    const name = `Remove …${items[0]!.job_id.slice(-8)}`;
    const remove = page.getByRole("button", { name });
    await remove.dblclick();
    const row = page.getByRole("row").filter({ has: remove });
    await row.getByText("removed").waitFor();
    expect(await world.ask("/dlq/stats")).toMatchObject({ total: total - 1 });
    await page.waitForResponse(/\/dlq\?/);
    expect(await page.evaluate<string>("document.activeElement.ariaLabel")).toBe(name);
  });

  test("a job that waits says why", async () => {
    const id = await world.submit("1");
    const page = await world.open("/console/queue");
    await page.getByTitle(id).waitFor();
    const { message } = await world.ask<{ message: string }>(`/jobs/${id}`);
    expect(await page.getByRole("cell", { name: message }).innerText()).toBe(message);
    await world.ask(`/jobs/${id}/cancel`, {});
  });

  test("axe finds nothing in any view, light or dark", async () => {
    const paths = [
      "",
      "/executions",
      `/executions/${failed}`,
      "/queue",
      "/job-types",
      "/sessions",
      "/dead-letters",
      "/webhooks",
      "/health",
      "/nowhere",
    ];
    for (const path of paths) {
      const page = await world.openWhole(`/console${path}`);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        expect(await faultsOf(page)).toEqual([]);
      }
      await page.close();
    }
  });

  test("it says that the service is gone, and goes on when it is back", async () => {
    const page = await world.open("/console/executions");
    await page.getByTitle(failed).waitFor();
    await world.stopService();
    await lostNote(page).waitFor();
    // The list from before is still shown.
    await page.getByTitle(failed).waitFor();
    await world.startService();
    await lostNote(page).waitFor({ state: "detached" });
    expect(await page.getByTitle(failed).count()).toBe(1);
  });

  test("a fork that is opened while the service is gone has its code once it is back", async () => {
    const page = await world.open(`/console/executions/${failed}`);
    await page.getByRole("textbox", { name: "Code of this execution" }).waitFor();
    await world.stopService();
    await page.getByRole("link", { name: "Fork", exact: true }).click();
    await lostNote(page).waitFor();
    await page.getByText("Loading its code").waitFor();
    // The draft from before is not taken for the fork.
    expect(await page.getByRole("button", { name: "Run Ctrl ⏎" }).isDisabled()).toBe(true);
    await world.startService();
    await editorOf(page).getByText("mean([])").waitFor();
  });
});
