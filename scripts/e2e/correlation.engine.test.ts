import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestService, type TestService } from "../testing/test-service.ts";
import type { NodeProcess } from "../../api/testing/start-node.ts";

const mine = "order-4711:retry@shop.example";
const forging = "x y] INFO forged";

/** The shape of a log line: docs/contract.md 8.2. */
const shape =
  /^(?<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) \[(?<id>[^\]]+)\] (?<level>[A-Z]+) (?<logger>[a-z.]+) (?<message>.+)$/;

type Line = { time: string; id: string; level: string; logger: string; message: string };

function parseText(line: string): Line {
  const { groups } = shape.exec(line) ?? {};
  if (!groups) throw new Error(`not in the contract's shape: ${line}`);
  return { ...(groups as Line) };
}

function parseJson(line: string): Line {
  const record = JSON.parse(line) as Record<string, string>;
  const { "@timestamp": time = "", correlationId: id = "-", level = "" } = record;
  return { time, id, level, logger: record["logger"] ?? "", message: record["message"] ?? "" };
}

describe.each([
  ["text", parseText],
  ["json", parseJson],
])("log_format %s: one correlation id, from the request to the dead letter", (format, parse) => {
  let service: TestService<NodeProcess>;
  let answers: Response[];
  let ids: string[];
  let said: { api: Line[]; agent: Line[] };
  let letter: unknown;

  beforeAll(async () => {
    const logging = { AIRLOCK_LOG_LEVEL: "info", AIRLOCK_LOG_FORMAT: format };
    service = await startTestService({ api: logging, agents: logging });
    const agent = await service.startAgent();
    answers = [await submit(mine), await submit(forging), await submit()];
    ids = answers.map(({ headers }) => headers.get("X-Correlation-ID") ?? "");
    letter = await untilDead(answers[0]!);
    agent.process.kill("SIGTERM");
    await agent.exit;
    const api = service.api();
    api.child.kill("SIGTERM");
    said = { api: lines(await api.logged), agent: lines(await agent.stderr) };
  });

  afterAll(() => service?.[Symbol.asyncDispose]());

  const submit = (id?: string) =>
    fetch(`${service.url}/execute/async`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(id && { "X-Correlation-ID": id }) },
      body: JSON.stringify({ code: "{}['missing']" }),
    });

  /** The dead letter of a submission that fails. */
  async function untilDead(answer: Response): Promise<unknown> {
    const { job_id } = (await answer.clone().json()) as { job_id: string };
    await service.ended(job_id);
    const { json } = await service.send<{ items: { job_id: string }[] }>("GET", "/dlq");
    return json.items.find((item) => item.job_id === job_id);
  }

  const lines = (log: string): Line[] =>
    log
      .split("\n")
      .filter((line) => line !== "")
      .map(parse);

  test("the client's own is in the response's header and body", async () => {
    expect(ids[0]).toBe(mine);
    expect(await answers[0]!.json()).toMatchObject({ correlation_id: mine });
  });

  test("one is made if the client sends none, or one that could forge a log line", () => {
    expect(ids.slice(1)).toEqual(Array(2).fill(expect.stringMatching(/^[0-9a-f-]{36}$/)));
    expect(new Set(ids).size).toBe(3);
  });

  test("the API's log has it, in the line of the request", () => {
    for (const id of ids) {
      expect(said.api).toContainEqual({
        time: expect.stringMatching(/Z$/) as string,
        id,
        level: "INFO",
        logger: "airlock.api",
        message: expect.stringMatching(/^POST \/execute\/async 202 \d+ ms$/) as string,
      });
    }
  });

  test("the agent's log has it, in the line of the run", () => {
    expect(said.agent.filter(({ id }) => id === mine)).toMatchObject([
      {
        level: "INFO",
        logger: "airlock.agent",
        message: expect.stringMatching(/^attempt 1 failed \(key_error\) in \d+ ms/) as string,
      },
    ]);
  });

  test("the dead letter has it", () => {
    expect(letter).toMatchObject({ correlation_id: mine, error_type: "key_error", retry_count: 0 });
  });
});
