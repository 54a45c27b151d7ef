import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { fillHistory } from "../../../scripts/testing/fill-history.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import {
  editorOf,
  failedWith,
  lostNote,
  patienceMs,
  rowOf,
  typeCode,
  useConsole,
  world,
} from "../../testing/console-world.ts";

describe("mishaps", () => {
  const code = "print('of the parent')";
  const isHidden = `Object.defineProperty(document, "hidden", { get: () => globalThis.isShown !== true });`;
  /** The label or text of the element that has the focus. */
  const focused = (page: Page): Promise<string> =>
    page.evaluate<string>(
      "(document.activeElement.labels?.[0] ?? document.activeElement).firstChild.textContent",
    );
  /** Browsers open as many connections to one service, for all tabs together. */
  const connections = 6;

  describe("the console where something is amiss", needs("chromium"), () => {
    useConsole();

    test("before anything has run, the list says how to begin", async () => {
      const page = await world.open("/console/executions");
      const program = page.getByLabel("Program", { exact: true });
      expect(await program.innerText()).toContain(`curl -sS ${world.url}/execute`);
      await page.getByRole("link", { name: "Run something in the playground" }).click();
      await page.getByRole("heading", { name: "Playground" }).waitFor();
    });

    test("with a clock that is an hour fast, times are counted by the service's", async () => {
      const { id, lease } = await world.begin(code);
      const fast = "const now = Date.now; Date.now = () => now() + 3_600_000;";
      const list = await world.open("/console/executions", fast);
      const row = list.getByRole("row").filter({ has: list.getByTitle(id) });
      await expect.poll(() => row.innerText(), { timeout: patienceMs }).toMatch(/ago|now/);
      expect(await row.innerText()).not.toMatch(/ h/);
      await list.getByLabel("Submitted").selectOption("last hour");
      await list.waitForURL(/created_after/);
      await row.waitFor();
      await world.agent.result(lease);
    });

    test("a filter is chosen by keyboard, step by step", async () => {
      const page = await world.open("/console/executions");
      const status = page.getByLabel("Status");
      await status.focus();
      for (const name of ["queued", "running", "succeeded"]) {
        await page.keyboard.press("ArrowDown");
        await page.waitForURL(new RegExp(`status=${name}`));
      }
      expect(await focused(page)).toBe("Status");
    });

    test("what is typed into a fork outlives a reload, and one's own program comes back after it", async () => {
      const id = await world.run(code);
      const page = await world.open("/console");
      const editor = editorOf(page);
      await typeCode(page, "print('my own')");
      await page.getByRole("link", { name: "Executions" }).click();
      await page.getByTitle(id).click();
      await page.getByRole("link", { name: "Fork", exact: true }).click();
      await editor.getByText("of the parent").click();
      await page.keyboard.press("Control+End");
      await page.keyboard.type(" # changed");
      await page.reload();
      await editor.getByText("# changed").waitFor();
      await page.getByRole("link", { name: "Leave the fork" }).click();
      await editor.getByText("my own").waitFor();
      // A new fork begins with the parent's code.
      await page.goto(`${world.url}/console/executions/${id}`);
      await page.getByRole("link", { name: "Fork", exact: true }).click();
      await editor.getByText("of the parent").waitFor();
      expect(await editor.innerText()).not.toContain("changed");
    });

    test("a running job in many hidden tabs leaves connections for others, and is seen to end", async () => {
      const { id, lease } = await world.begin(code);
      const tabs = await Promise.all(
        Array.from({ length: connections }, () =>
          world.open(`/console/executions/${id}`, isHidden),
        ),
      );
      for (const tab of tabs) await tab.getByText("No output yet.").waitFor();
      const page = await world.open("/console/executions");
      await page.getByTitle(id).waitFor();
      await page.close();
      for (const tab of tabs) await expect.poll(() => tab.title()).toMatch(/^running/);
      await world.agent.result(lease);
      for (const tab of tabs) {
        await tab.evaluate("isShown = true; document.dispatchEvent(new Event('visibilitychange'))");
        await tab.getByText("succeeded", { exact: true }).first().waitFor();
        await tab.close();
      }
    });

    test("an editor that cannot be loaded says so", async () => {
      const page = await world.open("/console/executions");
      await page
        .getByRole("link", { name: "Show all" })
        .or(page.getByRole("table"))
        .first()
        .waitFor();
      await page.route(/code-mirror-/, (route) => route.abort());
      await page.getByRole("link", { name: "Playground" }).click();
      await page.getByText("The editor could not be loaded").first().waitFor();
      await page.unroute(/code-mirror-/);
      await page.getByRole("button", { name: "Reload the page" }).first().click();
      await editorOf(page).waitFor();
      expect(await page.getByText("The editor could not be loaded").count()).toBe(0);
    });

    test("without the right to the clipboard, a command is copied out of a dialog", async () => {
      const page = await world.open(
        "/console/queue",
        `Object.defineProperty(navigator, "clipboard", { value: undefined });
       addEventListener("copy", () => { globalThis.copied = document.activeElement.value; });`,
      );
      await page.getByRole("button", { name: "Add an agent" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Copy" }).click();
      await page.getByText("Copied").waitFor();
      // Above the dialog's backdrop.
      const isSeen = await page.evaluate<boolean>(`(() => {
      const notes = [...document.querySelectorAll(".announcement")];
      const note = notes.find(({ textContent }) => textContent === "Copied");
      const { x, y, width, height } = note.getBoundingClientRect();
      return document.elementFromPoint(x + width / 2, y + height / 2) === note;
    })()`);
      expect(isSeen).toBe(true);
      expect(await page.evaluate<string>("copied")).toContain("join --url");
      expect(await focused(page)).toBe("Copy");
    });

    test("what is asked for while the service is gone says so, and files are shown once it is back", async () => {
      const { id, lease } = await world.begin(code);
      await world.agent.upload(lease, "note.txt", "read me");
      await world.agent.result(lease);
      const page = await world.open(`/console/executions/${id}`);
      await page.getByText("read me", { exact: true }).waitFor();
      await world.stopService();
      await page.getByRole("button", { name: "Rerun" }).click();
      await page.getByText("The service does not answer. Try again when it is back.").waitFor();
      const file = page.getByRole("button", { name: "note.txt", exact: true });
      await file.click();
      await file.click();
      await lostNote(page).waitFor();
      await world.startService();
      await page.getByText("read me", { exact: true }).waitFor();
      expect(await lostNote(page).count()).toBe(0);
    });

    test("a service that takes requests and answers none is told after 10 s, and seen to be back", async () => {
      const page = await world.open("/console/executions");
      await page.getByRole("heading", { name: "Executions" }).waitFor();
      const told = page.getByText("What you see is from before");
      world.freezeService();
      try {
        await told.waitFor({ timeout: patienceMs });
      } finally {
        world.thawService();
      }
      await expect.poll(() => told.count(), { timeout: patienceMs }).toBe(0);
    });

    test("a gateway's page in place of the service counts as no answer", async () => {
      const page = await world.open("/console/executions");
      await page.route("**/health*", (route) =>
        route.fulfill({ status: 504, contentType: "text/html", body: "<h1>Gateway Time-out</h1>" }),
      );
      await page.getByText("What you see is from before").waitFor();
      expect(await page.locator("body").innerText()).not.toContain("Gateway Time-out");
    });

    test("a label narrows the list down by one more filter", async () => {
      const id = await world.submit(code, { metadata: { team: "blue" } });
      const page = await world.open("/console/executions?status=queued");
      const row = rowOf(page, id);
      await row.getByRole("link", { name: "team: blue" }).click();
      await page.waitForURL(/metadata=team/);
      expect(new URL(page.url()).searchParams.get("status")).toBe("queued");
      await world.finish();
    });

    test("two clicks on Rerun make one job", async () => {
      const id = await world.run(code);
      const page = await world.open(`/console/executions/${id}`);
      await page.getByRole("button", { name: "Rerun" }).dblclick();
      await page.waitForURL((url) => !url.pathname.includes(id));
      expect(await world.ask(`/executions?parent_execution_id=${id}`)).toMatchObject({ count: 1 });
    });

    test("the state of the service leads to the reason for it", async () => {
      await world.agent.leave();
      const page = await world.open("/console");
      await page.getByRole("link", { name: "degraded" }).click();
      await page.getByText("No agent is connected: jobs wait until one is.").waitFor();
      expect(new URL(page.url()).pathname).toBe("/console/health");
    });
  });
});

describe("much", () => {
  const executions = 100_000;
  /** As many as a page of the list can have. */
  const many = 1000;
  const code = "def mean(values):\n    return sum(values) / len(values)\nmean([])\n";

  describe(`the console with ${executions} executions`, needs("chromium"), () => {
    useConsole({ AIRLOCK_MAX_QUEUE_SIZE: String(2 * many) }, (folder) =>
      fillHistory(folder, executions),
    );

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
      await world.ask(`/jobs/${newer}/cancel`, {});
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
    });

    test("of 1 MiB of output, only the rows in view exist", async () => {
      const lines = Array.from({ length: 30_000 }, (_, i) => `line ${i} of a long output, indeed`);
      const stdout_base64 = btoa(`${lines.join("\n")}\n`.slice(0, 1 << 20));
      const id = await world.run("print('much')", { stdout_base64 });
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
    });

    test("a failed job is found by filters, forked and run again", async () => {
      const failure = failedWith("division_error", "ZeroDivisionError");
      const parent = await world.run(code, failure, { metadata: { order: "4711" } });
      const changes = { code: `${code}print('forked')\n`, metadata: { order: "4712" } };
      await world.ask(`/jobs/${parent}/fork`, changes);
      const { execution_id: child } = await world.finish(failure);
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
      await world.finish();
      await page.getByText("Rerun of").waitFor();
      await page.getByRole("link", { name: "Fork" }).click();
      await editorOf(page).getByText("print('forked')").click();
      await page.keyboard.press("Control+Enter");
      expect((await world.finish()).code).toBe(`${code}print('forked')\n`);
      await page.getByText("succeeded").waitFor();
    });

    test("the oldest of many waiting jobs are grouped by what they wait for, with the reason", async () => {
      const oldest = await world.submit("0");
      const jobs = Array.from({ length: many }, () => ({ code: "1" }));
      const { batch_id: id } = await world.ask<{ batch_id: string }>("/execute/batch", { jobs });
      expect(id).toBeDefined();
      const page = await world.open("/console/queue");
      await page.getByText(/^The oldest 100 of 1,001\./).waitFor();
      // Jobs that wait for the same are one row.
      const row = rowOf(page, oldest);
      await row.getByRole("cell", { name: "100", exact: true }).waitFor();
      await row.getByRole("cell", { name: "Waiting for a worker, at position 1." }).waitFor();
      await world.ask(`/batches/${id}/cancel`, {});
      await world.ask(`/jobs/${oldest}/cancel`, {});
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
    });
  });
});
