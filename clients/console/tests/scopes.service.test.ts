import { AxeBuilder } from "@axe-core/playwright";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import { type Airlock, connect } from "../../typescript/src/index.ts";
import { type ConsoleWorld, startConsole } from "./testing/console-world.ts";

const operatorKey = "operator-0123456789";
const needed = (scope: string): string => `Needs an API key that has the scope ${scope}`;

describe("what a key may not do", needs("chromium"), () => {
  let world: ConsoleWorld;
  let operator: Airlock;
  let job: string;
  beforeAll(async () => {
    world = await startConsole({
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_OPERATOR_KEYS: operatorKey,
      AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { requirements: ["numpy==2.3.4"] } }),
    });
    operator = connect({ url: world.url, key: operatorKey });
    ({ job_id: job } = await operator.submit("print(1)"));
  });
  afterAll(() => world.close());

  /** Opens a page with a key that has these scopes, and collects what the browser logs as an error. */
  async function open(path: string, scopes: ("run" | "read" | "build" | "monitor")[]) {
    const { key } = await operator.keys.create({ name: "a-key", scopes });
    const page = await world.open("/docs", `sessionStorage.setItem("airlock-key", "${key}");`);
    const errors: string[] = [];
    page.on("console", (line) => line.type() === "error" && errors.push(line.text()));
    await page.goto(world.url + path);
    return { page, errors };
  }
  const button = (page: Page, name: string): Locator =>
    page.getByRole("button", { name, exact: true });
  async function isRefused(one: Locator, scope: string): Promise<void> {
    await one.and(one.page().getByTitle(needed(scope))).waitFor();
    expect(await one.getAttribute("aria-disabled")).toBe("true");
  }

  test("a key that only reads is offered nothing else, on a small screen and a large one", async () => {
    const { page, errors } = await open("/console", ["read"]);
    const look = async () => {
      for (const width of [360, 1280]) {
        await page.setViewportSize({ width, height: 800 });
        const content = await page.evaluate("document.documentElement.scrollWidth");
        expect(content).toBeLessThanOrEqual(width);
        expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
      }
    };
    await isRefused(button(page, "Run Ctrl ⏎"), "run");
    await isRefused(button(page, "Add files"), "run");
    await look();
    await page.keyboard.press("Control+Enter");
    await page.getByRole("status").getByText(needed("run")).waitFor();
    expect(await page.getByText("Run shows the output").count()).toBe(1);

    await page.goto(`${world.url}/console/executions/${job}`);
    for (const name of ["Cancel", "Rerun"]) await isRefused(button(page, name), "run");
    await look();
    await page.goto(`${world.url}/console/executions?status=queued`);
    await isRefused(button(page, "Cancel all of these"), "run");
    await page.goto(`${world.url}/console/job-types`);
    for (const name of ["Build ml", "Last build of ml"]) {
      await isRefused(button(page, name), "build");
    }
    await look();
    await page.goto(`${world.url}/console/queue`);
    await isRefused(button(page, "Add an agent"), "agents");
    for (const [what, scope] of [
      ["agents", "monitor"],
      ["hosts", "agents"],
    ]) {
      const words = `To see the ${what}, use an API key that has the scope ${scope}.`;
      await page.getByText(words).waitFor();
    }
    await look();
    for (const view of ["health", "usage", "webhooks", "dead-letters"]) {
      await page.goto(`${world.url}/console/${view}`);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.waitForLoadState("networkidle");
    }
    // Nothing was asked that the service refuses.
    expect(errors).toEqual([]);
    await page.close();
  });

  test("a key with the scopes run and monitor does both, and cannot drain an agent", async () => {
    const { page, errors } = await open("/console/queue", ["run", "read", "monitor"]);
    await isRefused(page.getByRole("button", { name: /^Drain / }), "agents");
    await page.goto(`${world.url}/console/executions/${job}`);
    await button(page, "Rerun").click();
    await page.waitForURL((url) => !url.pathname.endsWith(job));
    await button(page, "Cancel").click();
    await page.getByRole("heading", { name: /Execution/ }).waitFor();
    await page.getByText("cancelled").first().waitFor();
    expect(errors).toEqual([]);
    await page.close();
  });

  test("a key without the scope read may still run, and is told what it lacks", async () => {
    const { page } = await open("/console", ["run"]);
    await page.locator("button.primary:not([aria-disabled=true])").click();
    await page.getByRole("alert").getByText("scope read").first().waitFor();
    await expect.poll(async () => (await operator.api.getUsage()).usage.queued).toBe(2);
    await page.close();
  });
});
