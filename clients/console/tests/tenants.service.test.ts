import type { Locator, Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import {
  faultsOf,
  overhangOf,
  patienceMs,
  rowOf,
  useConsole,
  world,
} from "../../testing/console-world.ts";
import { type Airlock, connect } from "../../typescript/src/index.ts";

const operatorKey = "operator-0123456789";

const withKey = (key: string) => `sessionStorage.setItem("airlock-key", ${JSON.stringify(key)});`;

describe("keys, usage and audit in the console", needs("chromium"), () => {
  let operator: Airlock;
  useConsole({
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_OPERATOR_KEYS: operatorKey,
  });
  beforeAll(() => {
    operator = connect({ url: world.url, key: operatorKey });
  });

  const open = (path: string, key = operatorKey): Promise<Page> => world.open(path, withKey(key));
  const makeKey = async (tenant: string, name = tenant): Promise<string> =>
    (await operator.keys.create({ name, tenant, scopes: ["run", "read"] })).key;

  test("a key is made and shown once, rotated, and revoked after a question", async () => {
    const page = await open("/console/keys");
    await page.getByText("No key was made here.").waitFor();
    await page.getByRole("button", { name: "Create a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("ci");
    await dialog.getByRole("combobox", { name: "Tenant" }).fill("search");
    await dialog.getByLabel("build: build images").check();
    await dialog.getByLabel("Expires").selectOption("in 90 days");
    await dialog.getByRole("button", { name: "Create" }).click();
    const key = await dialog.getByLabel("The key").innerText();
    expect(key).toMatch(/^alk_/);
    await dialog.getByText("It may run, read, build for the tenant search, until").waitFor();
    await dialog.getByRole("button", { name: "Done" }).click();
    const row = page.getByRole("row").filter({ hasText: "search" });
    await row.getByText("run, read, build").waitFor();
    await page.reload();
    await row.waitFor();
    expect(await page.content()).not.toContain(key);
    expect(await connect({ url: world.url, key }).usage()).toMatchObject({ tenant: "search" });

    await row.getByRole("button", { name: "Rotate ci" }).click();
    await dialog.getByLabel("The old key holds").selectOption("for an hour more");
    await dialog.getByRole("button", { name: "Make a new key" }).click();
    await dialog.getByText("The old key holds until").waitFor();
    expect(await dialog.getByLabel("The key").innerText()).not.toBe(key);
    await dialog.getByRole("button", { name: "Done" }).click();
    await row.getByText("rotated").waitFor();

    await row.getByRole("button", { name: "Revoke ci" }).click();
    // Enter alone revokes nothing.
    await dialog.waitFor();
    await page.keyboard.press("Enter");
    await page.locator("dialog").waitFor({ state: "detached" });
    await row.getByRole("button", { name: "Revoke ci" }).click();
    await dialog.getByRole("button", { name: "Revoke" }).click();
    await page.getByText("ci is revoked").waitFor();
    await page.getByText("Every key that was made here is void.").waitFor();
    await page.getByRole("link", { name: /^all/ }).click();
    await page.getByRole("cell", { name: "revoked" }).waitFor();
  });

  test("what cannot be made says why, and the dialog keeps what was typed", async () => {
    const page = await open("/console/keys");
    await page.getByRole("button", { name: "Create a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("ci");
    await dialog.getByRole("combobox", { name: "Tenant" }).fill("Search Team");
    await dialog.getByRole("button", { name: "Create" }).click();
    await dialog.getByRole("alert").getByText("tenant: must be 1 to 63").waitFor();
    expect(await dialog.getByLabel("Name").inputValue()).toBe("ci");
  });

  test("limits are set beside the use, by those who may; a tenant sees its own", async () => {
    const key = await makeKey("maps");
    await connect({ url: world.url, key }).submit("1");
    const page = await open("/console/usage");
    const row = page.getByRole("row").filter({ hasText: "maps" });
    await row.getByRole("button", { name: "Limits of maps" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Jobs that wait").fill("7");
    await dialog.getByLabel("Stored bytes").fill("a lot");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByText('"a lot" is no size').waitFor();
    await dialog.getByLabel("Stored bytes").fill("10 GiB");
    await dialog.getByRole("button", { name: "Save" }).click();
    await row.getByText("1 of 7").waitFor();
    expect(await operator.tenants.get("maps")).toMatchObject({
      limits: { max_queued: 7, max_running: null, max_stored_bytes: 10 * 1024 ** 3 },
    });
    await page.close();

    const own = await open("/console/usage", key);
    await own.getByRole("heading", { name: "Tenant maps" }).waitFor();
    await own.getByText("of 10 GiB").waitFor();
    expect(await own.getByText("All tenants").count()).toBe(0);
    expect(await own.getByRole("link", { name: "Keys" }).count()).toBe(0);
    await own.goto(`${world.url}/console/keys`);
    await own.getByRole("alert").getByText("scope admin").waitFor();
    expect(await own.getByRole("button", { name: "Create a key" }).count()).toBe(0);
  });

  test("the audit log is filtered by action and tenant, page by page", async () => {
    for (let i = 0; i < 60; i++) await makeKey("many", `key-${i}`);
    const page = await open("/console/audit");
    await page.getByLabel("Action").selectOption("key.create");
    await page.getByLabel("Tenant", { exact: true }).last().fill("many");
    await page.keyboard.press("Enter");
    await page.waitForURL(/action=key.create&tenant=many/);
    await page.getByText("name: key-59").waitFor();
    await page.getByRole("link", { name: "Older" }).click();
    await page.getByText("name: key-9,").waitFor();
    await page.getByLabel("Action").selectOption("host.revoke");
    await page.getByText("No entry matches.").waitFor();
    expect(await page.getByRole("table").count()).toBe(0);
  });

  test("an operator looks at another tenant, or at all with a column that says whose each record is", async () => {
    const key = await makeKey("tiles");
    const { job_id: id } = await connect({ url: world.url, key }).submit("1");
    const page = await open("/console/executions");
    await page.getByLabel("Tenant").selectOption("tiles");
    await page.getByTitle(id).waitFor();
    await page.getByLabel("Tenant").selectOption("all");
    await page.getByText("You see all tenants.").waitFor();
    await rowOf(page, id).getByText("tiles").waitFor();
    await page.getByTitle(id).click();
    await page
      .getByRole("heading", { name: /queued/ })
      .or(page.getByText("queued"))
      .first()
      .waitFor();
    await page.getByLabel("Tenant").selectOption("the key's own");
    await page.getByText(`Execution ${id} does not exist.`).waitFor();
    expect(await page.getByText("You see all tenants.").count()).toBe(0);
  });

  test("another key that is given shows its own tenant", async () => {
    const key = await makeKey("other");
    const page = await world.open(
      "/console/usage",
      `if (!sessionStorage.getItem("airlock-key")) { sessionStorage.setItem("airlock-key", "wrong-0123456789abcdef"); sessionStorage.setItem("airlock-tenant", "maps"); }`,
    );
    await page.getByRole("dialog").getByLabel("Key").fill(key);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Tenant other" }).waitFor();
    expect(await page.getByLabel("Tenant").count()).toBe(0);
  });

  test("nothing is wider than a small screen, each has a name, and a lost service is said", async () => {
    const page = await open("/console/keys");
    for (const view of ["keys", "usage", "audit"]) {
      await page.goto(`${world.url}/console/${view}`);
      await page.getByRole("table").waitFor();
      for (const width of [360, 1400]) {
        await page.setViewportSize({ width, height: 800 });
        expect(await overhangOf(page)).toBe(0);
        expect(await faultsOf(page)).toEqual([]);
      }
    }
    await page.goto(`${world.url}/console/keys`);
    await page.getByRole("button", { name: "Create a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("late");
    await world.stopService();
    await dialog.getByRole("button", { name: "Create" }).click();
    await dialog.getByText("The service does not answer.").waitFor();
    await world.startService();
    await dialog.getByRole("button", { name: "Create" }).click();
    await dialog.getByLabel("The key").waitFor({ timeout: patienceMs });
  });
});

const needed = (scope: string): string => `Needs an API key that has the scope ${scope}`;

describe("what a key may not do", needs("chromium"), () => {
  let operator: Airlock;
  let job: string;
  useConsole({
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_OPERATOR_KEYS: operatorKey,
    AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { requirements: ["numpy==2.3.4"] } }),
  });
  beforeAll(async () => {
    operator = connect({ url: world.url, key: operatorKey });
    ({ job_id: job } = await operator.submit("print(1)"));
  });

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
        expect(await overhangOf(page)).toBe(0);
        expect(await faultsOf(page)).toEqual([]);
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
  });

  test("a key without the scope read may still run, and is told what it lacks", async () => {
    const { page } = await open("/console", ["run"]);
    await page.locator("button.primary:not([aria-disabled=true])").click();
    await page.getByRole("alert").getByText("scope read").first().waitFor();
    await expect.poll(async () => (await operator.api.getUsage()).usage.queued).toBe(2);
  });
});
