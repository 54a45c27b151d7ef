import { AxeBuilder } from "@axe-core/playwright";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { connect } from "../../typescript/src/index.ts";
import { type ConsoleWorld, startConsole } from "./testing/console-world.ts";

const tools = [{ name: "get_price" }, { name: "send_mail" }];
const toolCall = (number: number, given: object = { item: `tea ${number}` }) => ({
  number,
  name: "get_price",
  arguments: given,
  stdout_at: 0,
  stderr_at: 0,
});

describe("tool calls in the console", needs("chromium"), () => {
  let world: ConsoleWorld;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    world = await startConsole({ AIRLOCK_MAX_SESSIONS_PER_TENANT: "100" });
    agent = world.agent;
    agent.maxSessions = 50;
  });
  afterAll(() => world.close());

  const make = (lease: string, ...items: object[]) => agent.post(lease, "items", { items });
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
    await agent.result(lease);
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
    await page.close();
  });

  test("a job without tools shows none, and asks for none", async () => {
    const id = await world.submit("1");
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id);
    const asked: string[] = [];
    const page = await world.open("/console/executions");
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(`${world.url}/console/executions/${id}`);
    await page.getByText("It wrote no output.").waitFor();
    await page.waitForLoadState("networkidle");
    expect(await callsOn(page).count()).toBe(0);
    expect(asked.filter((url) => url.includes("tool-calls"))).toEqual([]);
    await page.close();
  });

  test("a session's call shows its own, live and after its end", async () => {
    const airlock = connect(world.url);
    const made = airlock.sessions.create();
    await agent.startSession();
    const session = await made;
    const { job_id } = await session.submit({ code: "get_price('tea')", tools });
    const { lease_id } = await agent.takeCall();
    const page = await world.open(`/console/sessions/${session.id}`);
    const calls = callsOn(page);
    await make(lease_id, toolCall(1));
    await calls.getByText("1 call, 1 waiting for an answer").waitFor();
    await answer(job_id, 1, { result: 380 });
    await calls.getByText("answered").waitFor();
    expect(await calls.getByLabel("Answer of call 1").innerText()).toBe("380");
    await agent.result(lease_id);
    await page.reload();
    await calls.getByLabel("Answer of call 1").getByText("380").waitFor();
    await page.close();
    await session.close();
  });

  test("while the service is gone, the calls stay; those made since come when it is back", async () => {
    const { id, lease } = await world.begin("get_price('tea')", { tools });
    await make(lease, toolCall(1));
    const page = await world.open(`/console/executions/${id}`);
    const calls = callsOn(page);
    await calls.getByText("1 call, 1 waiting for an answer").waitFor();
    await world.stopService();
    await page.getByText("The service has not answered since").waitFor();
    await calls.getByLabel("Arguments of call 1").getByText("tea 1").waitFor();
    await world.startService();
    await make(lease, toolCall(2));
    await answer(id, 1, { result: 1 });
    await calls.getByText("2 calls, 1 waiting for an answer").waitFor();
    expect(await calls.locator("summary").allInnerTexts()).toEqual([
      "answered get_price",
      "waiting for an answer get_price",
    ]);
    await agent.result(lease);
    await page.close();
  });

  test.each([360, 1280])(
    "many calls, and long ones, are cut and fit into a page of %i px",
    async (width) => {
      const { id, lease } = await world.begin("get_price('tea')", { tools });
      const items = Array.from({ length: 130 }, (_, i) => toolCall(i + 2));
      await make(lease, toolCall(1, { item: "x".repeat(300_000) }));
      for (let i = 0; i < items.length; i += 26) await make(lease, ...items.slice(i, i + 26));
      await answer(id, 1, { result: "y".repeat(300_000) });
      await agent.result(lease);
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
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map(({ id, nodes }) => `${id} ${nodes[0]?.html}`)).toEqual([]);
      const over = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
      expect(over).toBe(0);
      await page.close();
    },
  );
});
