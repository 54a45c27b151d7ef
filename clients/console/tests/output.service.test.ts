import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import { type ConsoleWorld, startConsole } from "./testing/console-world.ts";

describe("the output of an execution", needs("chromium"), () => {
  let world: ConsoleWorld;
  beforeAll(async () => {
    world = await startConsole();
  });
  afterAll(() => world.close());

  async function ran(stdout: string, changes: object = {}): Promise<string> {
    const { id, lease } = await world.begin();
    await world.agent.result(lease, { stdout_base64: btoa(stdout), ...changes });
    return id;
  }

  const current = (page: Page): Promise<string[]> => page.locator(".current").allInnerTexts();

  test("code that its compiler refused is shown with its language, the compiler's words and its call", async () => {
    const id = await world.submit("int main( {}\n", { language: "c", compile_timeout: 20 });
    const job = await world.agent.takeJob();
    const stderr = "main.c:1:10: error: expected parameter\ncompilation terminated.\n";
    await world.agent.result(job.lease_id, {
      status: "failed",
      exit_code: null,
      error: {
        type: "compile_error",
        message: "main.c:1:10: error: expected parameter",
        phase: "execution",
      },
      compile: { exit_code: 1, stdout: "", stderr, ms: 31 },
    });
    const page = await world.open(`/console/executions/${id}`);
    const compiler = page.getByRole("region", { name: "Compiler" });
    await compiler.getByText("compilation terminated.").waitFor();
    expect(await compiler.innerText()).toContain("exit code 1, 31 ms");
    await page.getByText("The call that made it").click();
    const program = page.getByLabel("Program", { exact: true });
    for (const part of [/"language": "c"/, /"compile_timeout": 20/]) {
      await program.getByText(part).first().waitFor();
    }
    await page.close();
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
    await page.close();
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
    await raw.close();
    await page.close();
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
    await page.close();
  });

  test("a long line is one row where lines are not wrapped", async () => {
    const id = await ran(`${"x".repeat(600)}\n`);
    const page = await world.open(`/console/executions/${id}`);
    const rows = page.locator(".output-row");
    await expect.poll(() => rows.count()).toBeGreaterThan(1);
    await page.getByRole("checkbox", { name: "Wrap" }).uncheck();
    await expect.poll(() => rows.count()).toBe(1);
    await page.close();
  });

  test("the output of a failed run is shown from its end, where the traceback is", async () => {
    const id = await ran("line\n".repeat(200), {
      status: "failed",
      exit_code: 1,
      error: { type: "value_error", message: "ValueError: x", phase: "execution" },
      stderr_base64: btoa("ValueError: in the traceback\n"),
    });
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("ValueError: in the traceback").waitFor();
    const top = await page.evaluate<number>("document.querySelector('.output-text').scrollTop");
    expect(top).toBeGreaterThan(0);
    await page.close();
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
    await page.close();
  });

  test("Back from a related execution returns to the same place of the page", async () => {
    const parent = await ran("line\n".repeat(100));
    await fetch(`${world.url}/jobs/${parent}/rerun`, { method: "POST" });
    await world.agent.result((await world.agent.takeJob()).lease_id);
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
    await page.close();
  });
});
