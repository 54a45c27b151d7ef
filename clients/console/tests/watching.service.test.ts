import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { log } from "../../../api/testing/contract/working.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { type ConsoleWorld, startConsole } from "./testing/console-world.ts";

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
  let world: ConsoleWorld;
  beforeAll(async () => {
    world = await startConsole();
  });
  afterAll(() => world.close());

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
    await page.close();
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
    await world.agent.result(lease, {
      status: "cancelled",
      exit_code: null,
      error: { type: "cancelled", message: "cancelled", phase: "execution" },
    });
    await asked.waitFor({ state: "detached" });
    await expect.poll(() => page.title()).toMatch(/^cancelled/);
    await tried.getByRole("button", { name: "Stop", exact: true }).waitFor();
    const focused = () => tried.evaluate<string>("document.activeElement.textContent");
    await expect.poll(focused).toBe("Stop");
    await tried.close();
    await page.close();
  });

  test("of more than 20 running jobs, the page of the queue leads to the others", async () => {
    const leases: string[] = [];
    for (let i = 0; i < 21; i++) leases.push((await world.begin()).lease);
    const page = await world.open("/console/queue");
    await page.getByRole("link", { name: "All that run" }).click();
    await page.waitForURL(/status=running/);
    await expect.poll(() => page.getByRole("row").count()).toBe(1 + leases.length);
    for (const lease of leases) await world.agent.result(lease);
    await page.close();
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
    await asking.close();
    await still.close();
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
    await page.close();
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
    await fetch(`${world.url}/jobs/${id}/cancel`, { method: "POST" });
    await page.close();
  });
});
