import type { CallAnswer, CallItem, RunOptions, Tools } from "../job.ts";

/** Functions that a caller could bring, as a request describes them. */
export const functions = [
  {
    name: "add",
    description: "Adds two numbers.",
    parameters: { type: "object", properties: { b: {}, a: {} }, required: ["a"] },
  },
  { name: "echo", parameters: { additionalProperties: true } },
  { name: "fail" },
  { name: "never" },
  { name: "later", awaitable: true, parameters: { properties: { n: {} } } },
  {
    name: "odd",
    parameters: {
      properties: { "user-id": {}, class: {}, ﬁ: {}, others: {}, __debug__: {}, args: {} },
      required: ["args", "user-id"],
    },
  },
];

export const tools: Tools = { functions, timeoutMs: 20_000 };

type OnCall = NonNullable<RunOptions["onCall"]>;

/** A caller that answers at once, except `never`; it keeps what was called. */
export function answering(own?: OnCall) {
  const calls: CallItem[] = [];
  const onCall: OnCall = (call, answer) => {
    calls.push(call);
    if (own) return own(call, answer);
    if (call.name !== "never") answer(answerTo(call));
  };
  return { calls, onCall };
}

function answerTo({ name, arguments: given }: CallItem): CallAnswer {
  const { a = 0, b = 0 } = given as { a?: number; b?: number };
  if (name === "fail") return { error: "it failed" };
  return { resultJson: JSON.stringify(name === "add" ? a + b : given) };
}
