import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import { type ConsoleWorld, startConsole } from "./testing/console-world.ts";

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
  let world: ConsoleWorld;
  let failed: string;
  beforeAll(async () => {
    world = await startConsole();
    failed = await world.submit("1/0", { metadata: { order: "4711" }, args: ["a"], stdin: "b" });
    const { lease_id } = await world.agent.takeJob();
    await world.agent.result(lease_id, {
      status: "failed",
      exit_code: 1,
      error: { type: "division_error", message: "ZeroDivisionError", phase: "execution" },
      stderr_base64: btoa("ZeroDivisionError\n"),
    });
  });
  afterAll(() => world.close());

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
      const page = await world.open(`/console${path.replace("failed", failed)}`);
      await page.waitForLoadState("networkidle");
      // Starts from the top, even if an editor has the focus.
      await page.getByRole("link", { name: "To the content" }).focus();
      await page.evaluate(focused);
      const stops = await walk(page);
      expect(stops.length).toBeGreaterThan(8);
      for (const stop of stops) {
        expect(stop).toMatchObject({ isOutlined: true, isInView: true, isAfterLast: true });
      }
      expect(await page.evaluate<string[]>(neverReached)).toEqual([]);
      await page.close();
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
    await page.close();
  });

  test.each(paths)("at 360 px %s is as wide as the screen", async (path) => {
    const page = await world.open(`/console${path.replace("failed", failed)}`);
    await page.setViewportSize({ width: 360, height: 740 });
    await page.waitForLoadState("networkidle");
    expect(await page.evaluate<number>("document.documentElement.scrollWidth")).toBe(360);
    await page.close();
  });

  test("at 360 px the list of views is scrolled to where one is", async () => {
    const page = await world.open("/console/health");
    await page.setViewportSize({ width: 360, height: 740 });
    await page.reload();
    const here = page.getByRole("navigation").getByText("Health", { exact: true });
    await expect.poll(async () => (await here.boundingBox())!.x).toBeLessThan(300);
    await page.close();
  });
});
