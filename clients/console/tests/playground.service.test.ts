import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import {
  editorOf,
  overhangOf,
  failedWith,
  patienceMs,
  typeCode,
  useConsole,
  world,
} from "../../testing/console-world.ts";

describe("the playground", needs("chromium"), () => {
  useConsole();

  test("the next tab has the draft, until the key is forgotten", async () => {
    const page = await world.open("/console");
    await typeCode(page, "print('kept')");
    await page.close({ runBeforeUnload: true });
    const next = await world.open("/console");
    await editorOf(next).getByText("kept").waitFor();
    await typeCode(next, "print('kept here')");
    await next.evaluate("sessionStorage.setItem('airlock-key', 'a-key-of-20-characters')");
    await next.reload();
    await next.getByRole("button", { name: "Forget the key" }).click();
    await next.getByRole("button", { name: "Forget the key" }).waitFor({ state: "detached" });
    expect(await next.evaluate("localStorage.length")).toBe(0);
    await editorOf(next).getByText("print").first().waitFor();
    expect(await editorOf(next).getByText("kept").count()).toBe(0);
  });

  test("values, tables and pictures of a run are shown; HTML of the code runs no script and reaches nothing of the page", async () => {
    const page = await world.open("/console");
    const ends: string[] = [];
    page.on("response", (response) => ends.push(`answered ${response.url()}`));
    page.on("requestfailed", (request) => ends.push(`blocked ${request.url()}`));
    await typeCode(page, "table");
    await page.getByRole("button", { name: "Run", exact: false }).first().click();
    const { lease_id, results } = await world.agent.takeJob();
    expect(results).toBe(true);
    const html = `<table><tr><td>cell</td></tr></table><script>parent.document.title = "taken"</script>
      <img src="/stolen" onerror="top.location = '/stolen'"><a href="/stolen" target="_top">go</a>
      <a href="/stolen">away</a>`;
    const png =
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const at = { stdout_at: 0, stderr_at: 0 };
    await world.agent.post(lease_id, "items", {
      items: [{ number: 1, main: false, data: { "text/plain": "early" }, ...at }],
    });
    const shown = page.getByRole("region", { name: "Results" });
    await shown.getByText("early").waitFor();
    await world.agent.result(lease_id, {
      items: [
        { number: 2, main: false, data: { "text/plain": "a plot", "image/png": png }, ...at },
        { number: 3, main: true, data: { "text/plain": "df", "text/html": html }, ...at },
      ],
    });
    await page.frameLocator("iframe").getByText("cell").waitFor();
    await shown.getByRole("img", { name: "a plot" }).waitFor();
    expect(await page.evaluate("document.querySelector('.shown img').naturalWidth")).toBe(1);
    for (const link of ["go", "away"]) await page.frameLocator("iframe").getByText(link).click();
    expect(await page.title()).not.toBe("taken");
    await expect.poll(() => ends.filter((end) => end.endsWith("/stolen")).length).toBe(1);
    expect(ends).toContain(`blocked ${world.url}/stolen`);
    expect(page.url()).toContain("/console");
  });

  test("on a phone a run's state and output come to the top of the screen, above earlier runs too", async () => {
    const page = await world.open("/console");
    await page.setViewportSize({ width: 360, height: 740 });
    for (const word of ["first", "second"]) {
      await page.goto(`${world.url}/console`);
      await typeCode(page, `print('${word}')`);
      await page.getByRole("button", { name: "Run", exact: false }).first().click();
      await world.finish({ stdout_base64: btoa(`${word}\n`) });
      const written = page.getByRole("region", { name: "Output, text" }).getByText(word);
      await written.waitFor();
      const { y } = (await written.boundingBox())!;
      expect(y).toBeLessThan(740 / 2);
      const stop = (await page.getByRole("button", { name: "Stop" }).boundingBox())!;
      const state = (await page.locator("#run .status").boundingBox())!;
      expect(stop.y).toBeGreaterThanOrEqual(0);
      expect(state.y).toBeGreaterThanOrEqual(stop.y + stop.height);
      expect(state.y).toBeLessThan(y);
    }
  });

  test("code of a chosen language is sent as such, and a fork keeps its language", async () => {
    const page = await world.open("/console");
    await page.getByLabel("Language").selectOption("bash");
    const editor = page.getByRole("textbox", { name: "Code", exact: true });
    await typeCode(page, "echo $0", editor);
    await page.keyboard.press("Control+Enter");
    const job = await world.finish();
    expect([job.code, job.program?.run]).toEqual(["echo $0", ["bash", "/code/main.sh"]]);
    await page.goto(`${world.url}/console?fork=${job.execution_id}`);
    await editor.getByText("echo").waitFor();
    expect(await page.getByLabel("Language").inputValue()).toBe("bash");
    await page.getByLabel("Language").selectOption("python");
    await page.keyboard.press("Control+Enter");
    const other = await world.finish();
    expect([other.code, other.program]).toEqual(["echo $0", undefined]);
    // The next tab begins with the last draft.
    await page.goto(`${world.url}/console`);
    await page.getByLabel("Language").selectOption("python");
    await page.close({ runBeforeUnload: true });
  });

  test("an execution is run with another input and other files, and with copies of the files that are kept", async () => {
    const files = ["kept", "left"].map((text) => ({ name: `${text}.txt`, text }));
    const fields = { input_data: { n: 1 }, timeout: 77, metadata: { order: "1" }, files };
    const parent = await world.run("print('again')", {}, fields);
    const page = await world.open(`/console?fork=${parent}`);
    await page.getByText("unless you change them").waitFor();
    await page.getByRole("button", { name: "Remove left.txt" }).click();
    await page.getByRole("button", { name: "Put back the parent's files" }).click();
    await page.getByRole("button", { name: "Remove left.txt" }).click();
    await page.getByText("it is an execution of its own").waitFor();
    await typeCode(page, '{"n": 2}', page.getByRole("textbox", { name: "Input, JSON" }));
    await page.keyboard.press("Control+Enter");
    const job = await world.finish();
    expect(job).toMatchObject({ input_json: `{"n":2}`, timeout_s: 77 });
    expect(job.files).toMatchObject([{ name: "kept.txt", size_bytes: 4 }]);
    expect(await world.ask(`/executions/${job.execution_id}?view=full`)).toMatchObject({
      parent_execution_id: null,
      metadata: { order: "1" },
    });
  });

  test("an earlier run is shown again, and its code is put back", async () => {
    const page = await world.open("/console");
    for (const code of ["print('first')", "print('second')"]) {
      await typeCode(page, code);
      await page.keyboard.press("Control+Enter");
      await world.finish({ stdout_base64: btoa(`of ${code}\n`) });
      await page.getByRole("region", { name: "Output, text" }).getByText(`of ${code}`).waitFor();
    }
    await page.getByText("Earlier runs").click();
    await page.locator(".run details a").first().click();
    await page.getByText("of print('first')").waitFor();
    await page.getByRole("button", { name: "Take its code" }).click();
    await editorOf(page).getByText("first").waitFor();
    await expect.poll(() => page.getByText("its code was different").count()).toBe(0);
  });

  test("the note that the service does not answer goes when it answers", async () => {
    const page = await world.open("/console");
    await editorOf(page).waitFor();
    await world.stopService();
    await page.keyboard.press("Control+Enter");
    const told = page.getByText("The service does not answer. Try again when it is back.");
    await told.waitFor();
    await world.startService();
    await expect.poll(() => told.count(), { timeout: patienceMs }).toBe(0);
  });
});

/** More stops than any view has. */
const mostStops = 150;

/** Where the keyboard is: the element, whether it is seen there, and whether it comes after the last one. */
interface Stop {
  name: string;
  isOutlined: boolean;
  isInView: boolean;
  isAfterLast: boolean;
  isEditor: boolean;
}

const focused = `(() => {
  let element = document.activeElement;
  const host = element;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  if (!host || host === document.body) return null;
  const { outlineStyle, outlineWidth } = getComputedStyle(host);
  const box = host.getBoundingClientRect();
  const last = globalThis.last;
  globalThis.last = host;
  host.dataset.reached = "";
  return {
    name: element.getAttribute("aria-label") ?? element.innerText ?? host.className,
    isOutlined: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2,
    isInView: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    isAfterLast: !last || Boolean(last.compareDocumentPosition(host) & Node.DOCUMENT_POSITION_FOLLOWING),
    isEditor: host !== element,
  };
})()`;

const neverReached = `[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
  .filter((one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility())
  .filter((one) => !("reached" in one.dataset))
  .map((one) => one.outerHTML.slice(0, 120))`;

async function walk(page: Page): Promise<Stop[]> {
  const stops: Stop[] = [];
  while (stops.length < mostStops) {
    // An editor takes Tab for indenting, until Escape.
    if (stops.at(-1)?.isEditor) await page.keyboard.press("Escape");
    await page.keyboard.press("Tab");
    const stop = await page.evaluate<Stop | null>(focused);
    // After the last stop, the focus leaves the page or starts from the top.
    if (!stop || (stops.length > 0 && stop.name === "To the content")) return stops;
    stops.push(stop);
  }
  throw new Error(`the keyboard is caught at ${stops.at(-1)?.name}`);
}

describe("by keyboard alone", needs("chromium"), () => {
  let failed: string;
  useConsole();
  beforeAll(async () => {
    const stderr_base64 = btoa("ZeroDivisionError\n");
    failed = await world.run(
      "1/0",
      failedWith("division_error", "ZeroDivisionError", { stderr_base64 }),
      { metadata: { order: "4711" }, args: ["a"], stdin: "b" },
    );
  });

  const paths = [
    "",
    "/executions",
    "/executions/failed",
    "?fork=failed",
    "/queue",
    "/job-types",
    "/sessions",
    "/dead-letters",
    "/webhooks",
    "/health",
  ];

  test.each(paths)(
    "every control of %s is reached in order, seen, and left again",
    async (path) => {
      const page = await world.openWhole(`/console${path.replace("failed", failed)}`);
      // Starts from the top, even if an editor has the focus.
      await page.getByRole("link", { name: "To the content" }).focus();
      await page.evaluate(focused);
      const stops = await walk(page);
      expect(stops.length).toBeGreaterThan(8);
      for (const stop of stops) {
        expect(stop).toMatchObject({ isOutlined: true, isInView: true, isAfterLast: true });
      }
      expect(await page.evaluate<string[]>(neverReached)).toEqual([]);
    },
  );

  test("the first stop leads past the list of views, to the content", async () => {
    const page = await world.open("/console/executions");
    await page.getByTitle(failed).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await expect.poll(() => page.evaluate<string>("document.activeElement.id")).toBe("view");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("order:4711");
    await page.keyboard.press("Enter");
    await page.waitForURL(/metadata=order%3A4711/);
  });

  test.each(paths)("at 360 px %s is as wide as the screen", async (path) => {
    const page = await world.openWhole(`/console${path.replace("failed", failed)}`, 360);
    expect(await overhangOf(page)).toBe(0);
  });

  test("at 360 px the list of views is scrolled to where one is", async () => {
    const page = await world.open("/console/health");
    await page.setViewportSize({ width: 360, height: 740 });
    await page.reload();
    const here = page.getByRole("navigation").getByText("Health", { exact: true });
    await expect.poll(async () => (await here.boundingBox())!.x).toBeLessThan(300);
  });
});
