import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { log } from "../../../api/testing/contract/api.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { cancelled, failedWith, useConsole, world } from "../../testing/console-world.ts";

/** Without the right to the clipboard, the console copies as old browsers do. */
const catchCopies = `
  Object.defineProperty(navigator, "clipboard", { value: undefined });
  addEventListener("copy", () => { globalThis.copied = document.activeElement.value; });
`;
/** Timers of a second and more do not run by themselves. */
const holdTimers = `
  globalThis.held = new Map();
  const { setTimeout: start, clearTimeout: end } = globalThis;
  globalThis.setTimeout = (act, ms, ...rest) => {
    if (!(ms >= 1000)) return start(act, ms, ...rest);
    const id = -1 - Math.random();
    held.set(id, { act, ms });
    return id;
  };
  globalThis.clearTimeout = (id) => held.delete(id) || end(id);
`;
const countRemovedRows = `
  globalThis.removed = 0;
  new MutationObserver((records) => {
    for (const { removedNodes } of records) {
      for (const node of removedNodes) if (node.matches?.("tr, table")) removed += 1;
    }
  }).observe(document.querySelector("main"), { childList: true, subtree: true });
`;

describe("what a person sees of jobs that wait and run", needs("chromium"), () => {
  useConsole();

  test("the output of a running job is copied as far as it is shown, without its colours", async () => {
    const { id, lease } = await world.begin();
    const page = await world.open(`/console/executions/${id}`, catchCopies);
    await page.getByText("No output yet.").waitFor();
    const parts = [log(0, "\u001b[32mone\u001b[0m\ntwo\n")];
    await world.agent.post(lease, "logs", { parts });
    await page.getByText("two", { exact: true }).waitFor();
    const output = page.getByRole("region", { name: "Output", exact: true });
    await output.getByRole("button", { name: "Copy" }).click();
    await page.getByText("Copied").waitFor();
    expect(await page.evaluate<string>("copied")).toBe("one\ntwo\n");
    await world.agent.result(lease);
  });

  test("a job that was asked to end says so until it has ended, also to others", async () => {
    const { id, lease } = await world.begin();
    const page = await world.open(`/console/executions/${id}`);
    const asked = page.getByRole("button", { name: "Cancelling…" });
    const held = Promise.withResolvers<void>();
    await page.route("**/cancel", async (route) => {
      await held.promise;
      await route.continue();
    });
    const answered = page.waitForResponse("**/cancel");
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    // Before the service has answered.
    await asked.waitFor();
    held.resolve();
    await answered;
    await page.reload();
    await asked.waitFor();
    const tried = await world.open(`/console?job=${id}`);
    await tried.getByText("its code was different").waitFor();
    await tried.getByRole("button", { name: "Stopping…" }).focus();
    await world.agent.result(lease, cancelled);
    await asked.waitFor({ state: "detached" });
    await expect.poll(() => page.title()).toMatch(/^cancelled/);
    await tried.getByRole("button", { name: "Stop", exact: true }).waitFor();
    const focused = () => tried.evaluate<string>("document.activeElement.textContent");
    await expect.poll(focused).toBe("Stop");
  });

  test("of more than 20 running jobs, the page of the queue leads to the others", async () => {
    const leases: string[] = [];
    for (let i = 0; i < 21; i++) leases.push((await world.begin()).lease);
    const page = await world.open("/console/queue");
    await page.getByRole("link", { name: "All that run" }).click();
    await page.waitForURL(/status=running/);
    await expect.poll(() => page.getByRole("row").count()).toBe(1 + leases.length);
    for (const lease of leases) await world.agent.result(lease);
  });

  test("if two tabs show the same, one polls, and both show the answer", async () => {
    const asking = await world.open("/console/queue");
    const still = await world.open("/console/queue", holdTimers);
    await still.getByText("No job runs.").waitFor();
    // Its other list has come too.
    await still.waitForLoadState("networkidle");
    const asked: string[] = [];
    still.on("request", (request) => asked.push(request.url()));
    const { id, lease } = await world.begin();
    await asking.getByTitle(id).waitFor();
    await still.getByTitle(id).waitFor();
    expect(asked.filter((address) => !address.includes("/assets/"))).toEqual([]);
    await world.agent.result(lease);
  });

  test("when most of a key's rate limit is used up, the console leaves the rest to programs", async () => {
    const limits = {
      "RateLimit-Limit": "120",
      "RateLimit-Remaining": "59",
      "RateLimit-Reset": "600",
    };
    const page = await world.open("/console/nowhere", holdTimers);
    await page.route("**/pool/stats", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, headers: { ...response.headers(), ...limits } });
    });
    await page.goto(`${world.url}/console/queue`);
    await page.getByText("No job runs.").waitFor();
    const pauses = () => page.evaluate<number[]>("[...held.values()].map(({ ms }) => ms)");
    const feeds = 7;
    const answered = async () => {
      const all = await pauses();
      // Requests have a time-out, too.
      return all.includes(60_000) ? 0 : all.length;
    };
    await expect.poll(answered).toBe(feeds);
    // Runs the polls that were planned before the limit was known.
    await page.evaluate("for (const [id, { act }] of [...held]) { held.delete(id); act(); }");
    await expect.poll(answered).toBe(feeds);
    expect(await pauses()).toEqual(Array(feeds).fill(30_000));
  });

  test("the list of waiting jobs stays while the page looks at it again", async () => {
    const id = await world.submit("1");
    const page = await world.open("/console");
    await page.clock.install();
    await page.goto(`${world.url}/console/queue`);
    await page.getByTitle(id).waitFor();
    await page.evaluate(countRemovedRows);
    for (let i = 0; i < 3; i++) {
      const looked = page.waitForResponse(/\/jobs\//);
      await page.clock.runFor(21_000);
      await looked;
    }
    await page.getByTitle(id).waitFor();
    expect(await page.evaluate<number>("removed")).toBe(0);
    await world.ask(`/jobs/${id}/cancel`, {});
  });
});

describe("the output of an execution", needs("chromium"), () => {
  useConsole();

  const ran = (stdout: string, changes: object = {}): Promise<string> =>
    world.run("print('ran')", { stdout_base64: btoa(stdout), ...changes });

  const current = (page: Page): Promise<string[]> => page.locator(".current").allInnerTexts();

  test("code that its compiler refused is shown with its language, the compiler's words and its call", async () => {
    const message = "main.c:1:10: error: expected parameter";
    const stderr = `${message}\ncompilation terminated.\n`;
    const result = failedWith("compile_error", message, {
      exit_code: null,
      compile: { exit_code: 1, stdout: "", stderr, ms: 31 },
    });
    const id = await world.run("int main( {}\n", result, { language: "c", compile_timeout: 20 });
    const page = await world.open(`/console/executions/${id}`);
    const compiler = page.getByRole("region", { name: "Compiler" });
    await compiler.getByText("compilation terminated.").waitFor();
    expect(await compiler.innerText()).toContain("exit code 1, 31 ms");
    await page.getByText("The call that made it").click();
    const program = page.getByLabel("Program", { exact: true });
    for (const part of [/"language": "c"/, /"compile_timeout": 20/]) {
      await program.getByText(part).first().waitFor();
    }
  });

  test("a link to a line points to the same one after a reload, whatever the streams wrote between", async () => {
    const { id, lease } = await world.begin();
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("No output yet.").waitFor();
    const part = (stream: string, offset: number, text: string) => ({
      stream,
      offset,
      data_base64: btoa(text),
    });
    await world.agent.post(lease, "logs", {
      parts: [part("stderr", 0, "warning\n"), part("stdout", 0, "one\ntwo\n")],
    });
    await page.getByText("two", { exact: true }).waitFor();
    await page.locator(".output-number", { hasText: "2" }).click();
    expect(new URL(page.url()).hash).toBe("#L2");
    expect((await current(page)).join()).toContain("two");
    await world.agent.result(lease, {
      stdout_base64: btoa("one\ntwo\n"),
      stderr_base64: btoa("warning\n"),
    });
    await page.getByText("succeeded").first().waitFor();
    await page.reload();
    await page.getByText("warning", { exact: true }).waitFor();
    expect((await current(page)).join()).toContain("two");
    await page.locator(".output-number", { hasText: "E1" }).click();
    await page.reload();
    await page.getByText("warning", { exact: true }).waitFor();
    expect((await current(page)).join()).toContain("warning");
  });

  test("output is downloaded and opened as it was written", async () => {
    const written = "\u001b[32mgreen\u001b[0m\r\n50%\r100%\n";
    const id = await ran(written);
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("green", { exact: true }).waitFor();
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download", exact: true }).click();
    const download = await saved;
    expect(download.suggestedFilename()).toBe(`execution-${id}.txt`);
    expect(readFileSync(await download.path(), "utf8")).toBe(written);
    const opened = page.waitForEvent("popup");
    await page.getByRole("button", { name: "Raw" }).click();
    const raw = await opened;
    await raw.getByText("green").waitFor();
  });

  test("output fills the window until Escape, and nothing behind it takes the focus", async () => {
    const id = await ran("short\n");
    const page = await world.open(`/console/executions/${id}`);
    await page.getByRole("button", { name: "Full window" }).click();
    const output = page.getByRole("region", { name: "Output", exact: true });
    await expect.poll(async () => (await output.boundingBox())?.y).toBe(0);
    const { height } = page.viewportSize()!;
    expect((await output.boundingBox())?.height).toBe(height);
    for (let i = 0; i < 12; i++) {
      await page.keyboard.press("Tab");
      const isInside = await page.evaluate(
        "document.activeElement === document.body || document.activeElement.closest('.output') !== null",
      );
      expect(isInside).toBe(true);
    }
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Rerun" }).focus();
  });

  test("a long line is one row where lines are not wrapped", async () => {
    const id = await ran(`${"x".repeat(600)}\n`);
    const page = await world.open(`/console/executions/${id}`);
    const rows = page.locator(".output-row");
    await expect.poll(() => rows.count()).toBeGreaterThan(1);
    await page.getByRole("checkbox", { name: "Wrap" }).uncheck();
    await expect.poll(() => rows.count()).toBe(1);
  });

  test("the output of a failed run is shown from its end, where the traceback is", async () => {
    const stderr_base64 = btoa("ValueError: in the traceback\n");
    const result = failedWith("value_error", "ValueError: x", { stderr_base64 });
    const id = await ran("line\n".repeat(200), result);
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("ValueError: in the traceback").waitFor();
    const top = await page.evaluate<number>("document.querySelector('.output-text').scrollTop");
    expect(top).toBeGreaterThan(0);
  });

  test("text files of every kind are shown; of a long one, the beginning", async () => {
    const { id, lease } = await world.begin();
    const files = {
      "rows.jsonl": '{"row": 1}\n',
      "a.yaml": "key: in yaml\n",
      "long.txt": `the beginning\n${"x".repeat(4 * 1024 * 1024)}`,
    };
    for (const [name, text] of Object.entries(files)) await world.agent.upload(lease, name, text);
    await world.agent.result(lease);
    const page = await world.open(`/console/executions/${id}`);
    for (const text of ['{"row": 1}', "key: in yaml", "the beginning"]) {
      await page.getByText(text).waitFor();
    }
    const note = page.getByText("The first 200,000 characters. Download has the rest.");
    await expect.poll(() => note.count()).toBe(1);
  });

  test("Back from a related execution returns to the same place of the page", async () => {
    const parent = await ran("line\n".repeat(100));
    await world.ask(`/jobs/${parent}/rerun`, {});
    await world.finish();
    const page = await world.open(`/console/executions/${parent}`);
    await page.setViewportSize({ width: 360, height: 740 });
    // Below the output and the code.
    const relative = page.locator(".relatives ul a");
    await relative.scrollIntoViewIfNeeded();
    const address = await relative.getAttribute("href");
    const where = (): Promise<unknown[]> =>
      page.evaluate("[scrollY, document.activeElement.getAttribute('href')]");
    const [y] = await where();
    expect(y).toBeGreaterThan(0);
    await relative.click();
    await page.getByText("Rerun of").waitFor();
    await page.goBack();
    await expect.poll(where).toEqual([y, address]);
  });
});
