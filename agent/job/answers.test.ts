import { afterEach, beforeEach, expect, it } from "vitest";
import { createTestAgent, type TestAgent } from "../testing/test-agent.ts";

let t: TestAgent;

beforeEach(async () => {
  t = await createTestAgent();
  t.assumeGoodEngine();
});
afterEach(() => t[Symbol.asyncDispose]());

it("posts a call at once with what came before it, and asks for answers only while one is missing", async () => {
  const { ended } = t.begin();
  const sandbox = await t.sandbox(0);
  const { options } = await sandbox.running;
  const place = (number: number) => ({ number, stdoutAt: 0, stderrAt: 0 });
  const data = { "text/plain": "x" };
  const call = (number: number) => ({ ...place(number), name: "f", arguments: { a: 1 } });
  const asking = (after: number) => `/answers?after=${after}&wait_s=20`;
  const given: unknown[] = [];
  const askedAgain = Promise.withResolvers<unknown>();

  t.api.answer(asking(0), { status: 200, body: { answers: [{ number: 3, error: "no" }] } });
  t.api.answer(asking(1), {
    status: 200,
    body: { answers: [{ number: 2, result_json: "1.0" }] },
  });
  t.api.answer(asking(2), "silence");
  options.onItem?.({ ...place(1), main: false, data });
  options.onCall?.(call(2), (one) => askedAgain.resolve(given.push(one)));
  options.onCall?.(call(3), (one) => given.push(one));
  await askedAgain.promise;
  expect(given).toEqual([{ error: "no" }, { resultJson: "1.0" }]);
  const posts = t.api.received.filter(({ path }) => path.endsWith("/items"));
  const sent = posts.flatMap(({ json }) => (json as { items: { number: number }[] }).items);
  expect(sent).toMatchObject([
    { number: 1, data },
    { number: 2, name: "f", arguments: { a: 1 }, stdout_at: 0, stderr_at: 0 },
    { number: 3 },
  ]);
  expect(t.api.count(asking(2))).toBe(0);

  options.onCall?.(call(4), (one) => given.push(one));
  const { hungUp } = await t.api.request(asking(2));
  sandbox.finish({ items: [{ ...place(1), main: false, data }] });
  await hungUp;
  await ended;
  expect((await t.api.request("/result")).json).not.toHaveProperty("items");
  expect(given).toHaveLength(2);
});
