import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../../scripts/testing/needs.ts";
import {
  cancelled,
  faultsOf,
  overhangOf,
  lostNote,
  rowOf,
  useConsole,
  world,
} from "../../testing/console-world.ts";
import { connect, type OpenSession } from "../../typescript/src/index.ts";

const at = { stdout_at: 0, stderr_at: 0 };

/** A console whose agent takes sessions. */
function useSessions(): void {
  useConsole({ AIRLOCK_MAX_SESSIONS_PER_TENANT: "100" });
  beforeAll(() => void (world.agent.maxSessions = 50));
}

describe("sessions in the console", needs("chromium"), () => {
  useSessions();

  async function openSession(): Promise<OpenSession> {
    const made = connect(world.url).sessions.create({ metadata: { chat: "4711" } });
    await world.agent.startSession();
    return made;
  }

  async function type(page: Page, code: string): Promise<void> {
    await page.getByRole("textbox", { name: "Cell" }).click();
    await page.keyboard.type(code);
    await page.keyboard.press("Control+Enter");
  }

  test("a session is made, runs cells, is interrupted, and ends after a question", async () => {
    const page = await world.open("/console/sessions");
    await page.getByText("A session is a Python interpreter").waitFor();
    await page.getByRole("button", { name: "New session" }).click();
    await page.getByRole("heading", { name: "Session …" }).waitFor();
    await page.getByText("It has no calls.").waitFor();
    await page.getByText("queued").waitFor();
    await world.agent.startSession();
    await page.getByText("ready").waitFor();
    await page.getByText("default, Python 3.13.2, forked").waitFor();

    await type(page, "x = 41\nx + 1");
    const first = await world.agent.takeCall();
    expect([first.code, first.results]).toEqual(["x = 41\nx + 1", true]);
    await page.getByText("busy").waitFor();
    const items = [{ number: 1, main: true, data: { "text/plain": "42" }, ...at }];
    await world.agent.result(first.lease_id, { items });
    const calls = page.getByRole("region", { name: "Calls" });
    await calls.getByLabel("Result 1").getByText("42").waitFor();
    await calls.getByRole("textbox", { name: "Code of this call" }).getByText("x = 41").waitFor();
    // The prompt is empty again, and has the focus.
    await type(page, "while True: pass");
    const second = await world.agent.takeCall();
    expect(second.code).toBe("while True: pass");
    await page.getByRole("button", { name: "Interrupt" }).click();
    for (;;) {
      const { cancel } = await world.agent.poll({ free_slots: 0, wait_s: 2 });
      if (cancel.includes(second.lease_id)) break;
    }
    await world.agent.result(second.lease_id, cancelled);
    await calls.getByText("cancelled").first().waitFor();
    await page.getByText("ready").waitFor();

    await page.getByRole("button", { name: "End" }).click();
    // Enter alone ends nothing.
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "End" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
    await page.getByText("ended by a client").waitFor();
    await page.getByText("Its variables and files are gone.").waitFor();
    expect(await page.getByRole("textbox", { name: "Cell" }).count()).toBe(0);
    await calls.getByText("cancelled").first().waitFor();
  });

  test("a call's page leads to its session, offers no rerun and no fork, and shows its call", async () => {
    const session = await openSession();
    const { job_id } = await session.submit("1 / 0");
    const { lease_id } = await world.agent.takeCall();
    await world.agent.result(lease_id);
    const page = await world.open(`/console/executions/${job_id}`);
    await page.getByTitle(session.id).waitFor();
    await page.getByText("The call that made it").click();
    await page.getByText(`/sessions/${session.id}/execute`).waitFor();
    expect(await page.getByRole("button", { name: "Rerun" }).count()).toBe(0);
    expect(await page.getByRole("link", { name: "Fork" }).count()).toBe(0);
    await page.getByTitle(session.id).click();
    await page.getByRole("textbox", { name: "Cell" }).waitFor();
    await session.close();
  });

  test("the list shows states, reasons and metadata, can be narrowed, and ends sessions", async () => {
    const sessions = [await openSession(), await openSession()];
    await sessions[0]!.close();
    const page = await world.open("/console/sessions");
    const row = (n: number) => rowOf(page, sessions[n]!.id);
    await row(0).getByText("ended by a client").waitFor();
    await row(1).getByText("ready").waitFor();
    await row(1).getByText("chat: 4711").waitFor();
    await page.getByRole("link", { name: "ready" }).click();
    await row(0).waitFor({ state: "detached" });
    await row(1).getByRole("button", { name: "End session" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
    await page.getByText("No session is ready.").waitFor();
    expect(await sessions[1]!.info()).toMatchObject({ status: "ended", reason: "deleted" });
  });

  test("a session's page says that the service is gone, keeps what was typed, and goes on", async () => {
    const session = await openSession();
    const page = await world.open(`/console/sessions/${session.id}`);
    await page.getByText("ready").waitFor();
    await world.stopService();
    await lostNote(page).waitFor();
    await type(page, "kept = 1");
    await page.getByRole("alert").getByText("Try again when it is back").waitFor();
    await world.startService();
    await lostNote(page).waitFor({ state: "detached" });
    await page.keyboard.press("Control+Enter");
    const { code, lease_id } = await world.agent.takeCall();
    expect(code).toBe("kept = 1");
    await world.agent.result(lease_id);
    await session.close();
  });

  test.each([360, 1280])(
    "axe finds nothing, and nothing is wider than a page of %i px",
    async (width) => {
      const session = await openSession();
      const { job_id } = await session.submit("x");
      const { lease_id } = await world.agent.takeCall();
      const data = { "text/plain": "0".repeat(500) };
      await world.agent.result(lease_id, { items: [{ number: 1, main: true, data, ...at }] });
      for (const path of ["/sessions", `/sessions/${session.id}`, `/executions/${job_id}`]) {
        const page = await world.openWhole(`/console${path}`, width);
        expect(await faultsOf(page)).toEqual([]);
        expect(await overhangOf(page)).toBe(0);
        await page.close();
      }
      await session.close();
    },
  );
});

const tools = [{ name: "get_price" }, { name: "send_mail" }];
const toolCall = (number: number, given: object = { item: `tea ${number}` }) => ({
  number,
  name: "get_price",
  arguments: given,
  stdout_at: 0,
  stderr_at: 0,
});

describe("tool calls in the console", needs("chromium"), () => {
  useSessions();

  const make = (lease: string, ...items: object[]) => world.agent.post(lease, "items", { items });
  const answer = (id: string, number: number, given: object) =>
    connect(world.url).api.answerToolCall({ id, $number: number, toolAnswer: given });
  const callsOn = (page: Page) => page.getByRole("region", { name: "Tool calls" });

  test("a call is there as it is made, then its answer or error, and all of them after the end", async () => {
    const { id, lease } = await world.begin("get_price('tea')", { tools });
    const page = await world.open(`/console/executions/${id}`);
    const calls = callsOn(page);
    await calls.getByText("The code has called none of its tools.").waitFor();
    const hostile = `<img src=x onerror="document.title='owned'">`;
    await make(lease, toolCall(1, { item: hostile }), toolCall(2), toolCall(3));
    await calls.getByText("3 calls, 3 waiting for an answer").waitFor();
    expect(await calls.getByLabel("Arguments of call 1").innerText()).toBe(
      JSON.stringify({ item: hostile }, null, 2),
    );
    await answer(id, 1, { result: { html: hostile } });
    await answer(id, 2, { error: hostile });
    await calls.getByText("3 calls, 1 waiting for an answer").waitFor();
    await world.agent.result(lease);
    const seen = async () => {
      await calls.getByText("3 calls, 1 without an answer").waitFor();
      expect(await calls.getByLabel("Answer of call 1").innerText()).toContain(`"html": "<img`);
      expect(await calls.getByLabel("Error of call 2").innerText()).toBe(hostile);
      expect(await calls.locator("summary").allInnerTexts()).toEqual([
        "answered get_price",
        "failed get_price",
        "without an answer get_price",
      ]);
      expect([await calls.locator("img").count(), await page.title()]).toEqual([
        0,
        expect.stringContaining("succeeded"),
      ]);
    };
    await seen();
    await page.reload();
    await seen();
    // The request that made it, with its tools and for events.
    await page.getByText("The call that made it").click();
    const program = page.getByLabel("Program", { exact: true });
    await program.getByText("/execute/async").first().waitFor();
    await program
      .getByText(/"send_mail"/)
      .first()
      .waitFor();
  });

  test("a job without tools shows none, and asks for none", async () => {
    const id = await world.run("1");
    const asked: string[] = [];
    const page = await world.open("/console/executions");
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(`${world.url}/console/executions/${id}`);
    await page.getByText("It wrote no output.").waitFor();
    await page.waitForLoadState("networkidle");
    expect(await callsOn(page).count()).toBe(0);
    expect(asked.filter((url) => url.includes("tool-calls"))).toEqual([]);
  });

  test("a session's call shows its own, live and after its end", async () => {
    const made = connect(world.url).sessions.create();
    await world.agent.startSession();
    const session = await made;
    const { job_id } = await session.submit({ code: "get_price('tea')", tools });
    const { lease_id } = await world.agent.takeCall();
    const page = await world.open(`/console/sessions/${session.id}`);
    const calls = callsOn(page);
    await make(lease_id, toolCall(1));
    await calls.getByText("1 call, 1 waiting for an answer").waitFor();
    await answer(job_id, 1, { result: 380 });
    await calls.getByText("answered").waitFor();
    expect(await calls.getByLabel("Answer of call 1").innerText()).toBe("380");
    await world.agent.result(lease_id);
    await page.reload();
    await calls.getByLabel("Answer of call 1").getByText("380").waitFor();
    await session.close();
  });

  test("while the service is gone, the calls stay; those made since come when it is back", async () => {
    const { id, lease } = await world.begin("get_price('tea')", { tools });
    await make(lease, toolCall(1));
    const page = await world.open(`/console/executions/${id}`);
    const calls = callsOn(page);
    await calls.getByText("1 call, 1 waiting for an answer").waitFor();
    await world.stopService();
    await lostNote(page).waitFor();
    await calls.getByLabel("Arguments of call 1").getByText("tea 1").waitFor();
    await world.startService();
    await make(lease, toolCall(2));
    await answer(id, 1, { result: 1 });
    await calls.getByText("2 calls, 1 waiting for an answer").waitFor();
    expect(await calls.locator("summary").allInnerTexts()).toEqual([
      "answered get_price",
      "waiting for an answer get_price",
    ]);
    await world.agent.result(lease);
  });

  test.each([360, 1280])(
    "many calls, and long ones, are cut and fit into a page of %i px",
    async (width) => {
      const { id, lease } = await world.begin("get_price('tea')", { tools });
      const items = Array.from({ length: 130 }, (_, i) => toolCall(i + 2));
      await make(lease, toolCall(1, { item: "x".repeat(300_000) }));
      for (let i = 0; i < items.length; i += 26) await make(lease, ...items.slice(i, i + 26));
      await answer(id, 1, { result: "y".repeat(300_000) });
      await world.agent.result(lease);
      const page = await world.open(`/console/executions/${id}`);
      await page.setViewportSize({ width, height: 800 });
      const calls = callsOn(page);
      await calls.getByText("131 calls, 130 without an answer").waitFor();
      for (const label of ["Arguments of call 1", "Answer of call 1"]) {
        const text = await calls.getByLabel(label).innerText();
        expect([text.length < 11_000, text.endsWith("[…]")]).toEqual([true, true]);
      }
      const last = calls.locator("details").last();
      await last.locator("bdi").getByText(`{ "item": "tea 131" }`).waitFor();
      await last.locator("summary").click();
      await calls.getByLabel("Arguments of call 131").waitFor();
      expect(await faultsOf(page)).toEqual([]);
      expect(await overhangOf(page)).toBe(0);
    },
  );
});
