import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { forgetPeak, peakBytes, residentBytes } from "../../shared/testing/memory.ts";
import { containersOf } from "../../agent/testing/raw-engine.ts";
import type { NodeProcess } from "../../api/testing/start-node.ts";
import { type Airlock, connect, type OwnTool } from "../../clients/typescript/src/index.ts";
import { countDescriptors } from "../../shared/testing/files.ts";
import {
  arrivesWhole,
  download,
  flatBytes,
  run,
  startTestService,
  type Stored,
  storeTwo,
  type TestAgent,
  type TestService,
} from "../testing/test-service.ts";

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
    await agent.end("SIGTERM");
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

describe("tools", () => {
  let service: TestService<NodeProcess>;
  let agent: TestAgent;
  let client: Airlock;
  beforeAll(async () => {
    const logging = { AIRLOCK_LOG_LEVEL: "debug" };
    service = await startTestService({ api: logging, agents: logging });
    agent = await service.startAgent();
    client = connect({ url: service.url });
  });
  afterAll(() => service[Symbol.asyncDispose]());

  test("an API that is killed while calls wait loses none of them, and repeats no answer", async () => {
    const called: unknown[] = [];
    const ask: OwnTool = { name: "ask", parameters: { properties: { n: {} } }, run: () => null };
    const { job_id } = await client.submit({
      code: "import asyncio\nprint(await asyncio.gather(*[ask(n) for n in range(3)]))",
      tools: [{ name: ask.name, parameters: ask.parameters!, awaitable: true }],
    });
    const numbers: number[] = [];
    for await (const { event, data } of client.stream(job_id)) {
      if (event === "tool_call" && numbers.push(data.number) === 3) break;
    }
    const [first = 0] = numbers;
    await client.api.answerToolCall({
      id: job_id,
      $number: first,
      toolAnswer: { result: "before" },
    });
    const { child } = service.api();
    child.kill("SIGKILL");
    await once(child, "exit");
    await service.startApi();
    const run = ({ n }: { n: number }): number => {
      called.push(n);
      return n;
    };
    const record = await client.wait(job_id, { tools: [{ ...ask, run }] });
    expect(record.stdout).toBe("['before', 1, 2]\n");
    expect(new Set(called)).toEqual(new Set([1, 2]));
    expect(called).toHaveLength(2);
  });

  test("neither arguments nor answers of calls are logged", async () => {
    const secrets = ["argument-4711", "answer-4711", "error-4711", "description-4711"];
    const tools: OwnTool[] = [
      {
        name: "good",
        description: secrets[3]!,
        parameters: { properties: { a: {} } },
        run: () => secrets[1],
      },
      {
        name: "bad",
        run: () => {
          throw new Error(secrets[2]);
        },
      },
    ];
    const code = `x = good("argument-4711")\ntry: bad()\nexcept ToolError: pass\nlen(x)`;
    const { status } = await client.run(code, { tools });
    expect(status).toBe("succeeded");
    await agent.end("SIGTERM");
    const api = service.api();
    api.child.kill("SIGTERM");
    const logged = [await api.logged, await agent.stderr].join("\n");
    expect(logged).toContain("succeeded");
    for (const secret of secrets) expect(logged).not.toContain(secret);
  });
});

const code = `
import sys
try:
    open("/input/tables/large.bin", "ab")
except OSError as error:
    print(type(error).__name__)
print(open("/input/tables/large.bin").read().count("x"), open("/input/small.txt").read(), sys.argv[1:], input())`;

test.each(["engine", "zygote"])(
  "jobs with container_backend %s read their files, and an agent fetches each once",
  async (backend) => {
    await using service = await startTestService();
    const vars = { AIRLOCK_CONTAINER_BACKEND: backend };
    await service.startAgent("files", vars);
    const files = [
      { name: "tables/large.bin", text: "x".repeat(300_000) },
      { name: "small.txt", base64: Buffer.from("tea").toString("base64") },
    ];
    const run = async () => {
      const job = { code, files, args: ["a"], stdin: "milk" };
      const { json } = await service.send<Record<string, unknown>>("POST", "/execute", job);
      return json;
    };
    const words = "\n300000 tea ['a'] milk\n";
    for (const result of [...(await Promise.all([run(), run()])), await run()]) {
      expect(result).toMatchObject({ success: true, stderr: "" });
      expect(result["stdout"]).toMatch(/^(PermissionError|OSError)\n/);
      expect(result["stdout"]).toContain(words);
    }
    // Kept by content: a second download would have another name.
    const spool = join(service.folder, "spool-files");
    const [own] = readdirSync(spool);
    expect(readdirSync(join(spool, own!, "input-files"))).toHaveLength(2);
  },
);

describe("api/node.ts", () => {
  let service: TestService<NodeProcess>;
  let files: Stored[];
  let pids: { api: number; agent: number };

  beforeAll(async () => {
    service = await startTestService();
    const agent = await service.startAgent();
    await run(service, "print(1)");
    pids = { api: service.api().child.pid!, agent: agent.process.pid! };
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  test("twice 100 MiB from containers to the store: agent and API stay as small as they were", async () => {
    const before = { api: residentBytes(pids.api), agent: residentBytes(pids.agent) };
    Object.values(pids).forEach(forgetPeak);
    files = await storeTwo(service);
    expect(peakBytes(pids.agent) - before.agent).toBeLessThan(flatBytes);
    expect(peakBytes(pids.api) - before.api).toBeLessThan(flatBytes);
  });

  test("twice 100 MiB, and a range of them, from the store to clients", async () => {
    const before = residentBytes(pids.api);
    forgetPeak(pids.api);
    await Promise.all(files.map(arrivesWhole));
    expect(peakBytes(pids.api) - before).toBeLessThan(flatBytes);
  });

  test("a client that does not read occupies no memory, and no descriptor after it hangs up", async () => {
    const descriptors = countDescriptors(pids.api);
    const before = residentBytes(pids.api);
    forgetPeak(pids.api);
    const lazy = await Promise.all(Array.from({ length: 8 }, () => download(files[0]!)));
    for (const response of lazy) await once(response, "readable");
    // A connection and a file each. The agent's own connections come and go meanwhile: fewer than eight of them.
    expect(countDescriptors(pids.api)).toBeGreaterThan(descriptors + 8);
    // Served in full meanwhile: whatever the others were to get has had its time.
    await arrivesWhole(files[0]!);
    expect(peakBytes(pids.api) - before).toBeLessThan(flatBytes);
    for (const response of lazy) response.destroy();
    await expect
      .poll(() => countDescriptors(pids.api), { timeout: 30_000 })
      .toBeLessThan(descriptors + 8);
  });
});

test("a service removes the containers of its agents, and leaves those of others alone", async () => {
  await using other = await startTestService();
  const names: string[] = [];
  {
    await using service = await startTestService();
    for (const one of [service, other]) {
      const agent = await one.startAgent();
      const id = await one.submit("import time; time.sleep(600)", {}, { timeout: 900 });
      await one.untilBegun(id);
      expect(await containersOf(agent.name)).not.toEqual([]);
      names.push(agent.name);
    }
  }
  expect(await containersOf(names[0]!)).toEqual([]);
  expect(await containersOf(names[1]!)).not.toEqual([]);
});
