import { beforeAll, expect, test } from "vitest";
import { service, useTestService } from "../../../scripts/testing/use-test-service.ts";
import { type Airlock, connect, ForbiddenError, type OwnTool } from "../src/index.ts";

const key = "key-0123456789abcdef";
const operator = "operator-0123456789abcdef";
useTestService({ key, api: { AIRLOCK_OPERATOR_KEYS: operator } });

let airlock: Airlock;
beforeAll(() => {
  airlock = connect({ url: service.url, key });
});

const price: OwnTool = {
  name: "price",
  description: "The price of an item.",
  parameters: { properties: { item: { type: "string" } }, required: ["item"] },
  run: ({ item }: { item: string }) => {
    if (item !== "tea") throw new RangeError(`no ${item} \ud800`);
    return Promise.resolve(380);
  },
};

test("the code calls functions, and gets results and errors", async () => {
  const others: OwnTool[] = [
    { name: "nothing", run: () => undefined },
    { name: "function_", run: () => price.run },
    { name: "infinite", run: () => ({ a: Infinity }) },
    { name: "large", run: () => "x".repeat(2_000_000) },
  ];
  const code = `
print(price.__doc__, price("tea"), nothing())
for failing in (lambda: price("gold"), function_, infinite, large):
    try: failing()
    except ToolError as error: print(error)`;
  const shown: string[] = [];
  const record = await airlock.run(code, {
    tools: [price, ...others],
    onStdout: (text) => shown.push(text),
  });
  expect(record).toMatchObject({ status: "succeeded", error: null });
  expect(record.stdout.split("\n")).toEqual([
    "The price of an item. 380 None",
    "RangeError: no gold \ufffd",
    "The result is no JSON: it is a function.",
    "The result is no JSON: a is Infinity, which JSON cannot carry: send null or text.",
    "The result is larger than an answer may be.",
    "",
  ]);
  expect(shown.join("")).toBe(record.stdout);
  const { run: _, ...described } = price;
  expect(record.tools?.[0]).toEqual(described);
});

test("values that the code shows come as it shows them", async () => {
  const shown: [text: string | undefined, isMain: boolean][] = [];
  const record = await airlock.run("display(1)\nprint(seen())\n2", {
    tools: [{ name: "seen", run: () => shown.length }],
    onResult: ({ data, main }) => shown.push([data["text/plain"], main]),
  });
  expect(record.stdout).toBe("1\n");
  expect(shown).toEqual([
    ["1", false],
    ["2", true],
  ]);
});

test("all calls that wait are answered at once", async () => {
  const meeting = Promise.withResolvers<void>();
  let waiting = 0;
  const meet: OwnTool = {
    name: "meet",
    awaitable: true,
    run: async () => {
      if (++waiting === 10) meeting.resolve();
      await meeting.promise;
      return waiting;
    },
  };
  const code = "import asyncio\nsum(await asyncio.gather(*[meet() for _ in range(10)]))";
  const record = await airlock.run(code, { tools: [meet] });
  expect(record.results?.[0]?.data).toEqual({ "text/plain": "100" });
});

test("wait answers the calls of a job that another program has submitted", async () => {
  const { job_id } = await airlock.submit({
    code: "print(price('tea'))",
    tools: [{ name: "price", parameters: price.parameters! }],
  });
  const record = await airlock.wait(job_id, { tools: [price] });
  expect(record.stdout).toBe("380\n");
});

test("a key that may not answer is an error, and not a wait until the time is over", async () => {
  const { keys } = connect({ url: service.url, key: operator });
  const reader = await keys.create({ name: "reader", scopes: ["read"] });
  const { job_id } = await airlock.submit({ code: "f()", tools: [{ name: "f" }] });
  const only = connect({ url: service.url, key: reader.key });
  const waiting = only.wait(job_id, { tools: [{ name: "f", run: () => 1 }] });
  await expect(waiting).rejects.toThrow(ForbiddenError);
  await airlock.cancel(job_id);
});
