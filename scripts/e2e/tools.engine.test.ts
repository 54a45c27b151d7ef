import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { NodeProcess } from "../../api/testing/start-node.ts";
import { type Airlock, connect, type OwnTool } from "../../clients/typescript/src/index.ts";
import { startTestService, type TestAgent, type TestService } from "../testing/test-service.ts";

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
  await client.api.answerToolCall({ id: job_id, $number: first, toolAnswer: { result: "before" } });
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
  agent.process.kill("SIGTERM");
  await agent.exit;
  const api = service.api();
  api.child.kill("SIGTERM");
  const logged = [await api.logged, await agent.stderr].join("\n");
  expect(logged).toContain("succeeded");
  for (const secret of secrets) expect(logged).not.toContain(secret);
});
