import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import { type ConsoleWorld, patienceMs, startConsole } from "./testing/console-world.ts";

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
  let world: ConsoleWorld;
  beforeAll(async () => {
    world = await startConsole();
  });
  afterAll(() => world.close());

  test("before anything has run, the list says how to begin", async () => {
    const page = await world.open("/console/executions");
    const program = page.getByLabel("Program", { exact: true });
    expect(await program.innerText()).toContain(`curl -sS ${world.url}/execute`);
    await page.getByRole("link", { name: "Run something in the playground" }).click();
    await page.getByRole("heading", { name: "Playground" }).waitFor();
    await page.close();
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
    await list.close();
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
    await page.close();
  });

  test("what is typed into a fork outlives a reload, and one's own program comes back after it", async () => {
    const { id, lease } = await world.begin(code);
    await world.agent.result(lease);
    const page = await world.open("/console");
    const editor = page.getByRole("textbox", { name: "Python code" });
    await editor.click();
    await page.keyboard.press("Control+a");
    await page.keyboard.type("print('my own')");
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
    await page.close();
  });

  test("a running job in many hidden tabs leaves connections for others, and is seen to end", async () => {
    const { id, lease } = await world.begin(code);
    const tabs = await Promise.all(
      Array.from({ length: connections }, () => world.open(`/console/executions/${id}`, isHidden)),
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
    await page.getByRole("textbox", { name: "Python code" }).waitFor();
    expect(await page.getByText("The editor could not be loaded").count()).toBe(0);
    await page.close();
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
    await page.close();
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
    await page.getByText("The service has not answered since").waitFor();
    await world.startService();
    await page.getByText("read me", { exact: true }).waitFor();
    expect(await page.getByText("The service has not answered since").count()).toBe(0);
    await page.close();
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
    await page.close();
  });

  test("a gateway's page in place of the service counts as no answer", async () => {
    const page = await world.open("/console/executions");
    await page.route("**/health*", (route) =>
      route.fulfill({ status: 504, contentType: "text/html", body: "<h1>Gateway Time-out</h1>" }),
    );
    await page.getByText("What you see is from before").waitFor();
    expect(await page.locator("body").innerText()).not.toContain("Gateway Time-out");
    await page.close();
  });

  test("a label narrows the list down by one more filter", async () => {
    const id = await world.submit(code, { metadata: { team: "blue" } });
    const page = await world.open("/console/executions?status=queued");
    const row = page.getByRole("row").filter({ has: page.getByTitle(id) });
    await row.getByRole("link", { name: "team: blue" }).click();
    await page.waitForURL(/metadata=team/);
    expect(new URL(page.url()).searchParams.get("status")).toBe("queued");
    await world.agent.result((await world.agent.takeJob()).lease_id);
    await page.close();
  });

  test("two clicks on Rerun make one job", async () => {
    const { id, lease } = await world.begin(code);
    await world.agent.result(lease);
    const page = await world.open(`/console/executions/${id}`);
    await page.getByRole("button", { name: "Rerun" }).dblclick();
    await page.waitForURL((url) => !url.pathname.includes(id));
    const answer = await fetch(`${world.url}/executions?parent_execution_id=${id}`);
    expect(((await answer.json()) as { items: unknown[] }).items).toHaveLength(1);
    await page.close();
  });

  test("the state of the service leads to the reason for it", async () => {
    await world.agent.leave();
    const page = await world.open("/console");
    await page.getByRole("link", { name: "degraded" }).click();
    await page.getByText("No agent is connected: jobs wait until one is.").waitFor();
    expect(new URL(page.url()).pathname).toBe("/console/health");
    await page.close();
  });
});
