import { expect } from "vitest";
import { limits } from "../../../shared/wire/limits.ts";
import { expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { working } from "./working.ts";

const getPrice = {
  name: "get_price",
  description: "The price of an item.",
  parameters: { type: "object", properties: { item: { type: "string" } }, required: ["item"] },
};
export const asked = { tools: [getPrice] };

const refused: [why: string, path: string, fields: Record<string, unknown>][] = [
  ["a name that is a keyword", "tools.0.name", { tools: [{ name: "class" }] }],
  ["a built-in name", "tools.0.name", { tools: [{ name: "print" }] }],
  ["a name of cells", "tools.0.name", { tools: [{ name: "display" }] }],
  ["a name that is none", "tools.0.name", { tools: [{ name: "a b" }] }],
  ["a name with two underscores before it", "tools.0.name", { tools: [{ name: "__name__" }] }],
  ["a name of other letters", "tools.0.name", { tools: [{ name: "prüfe" }] }],
  ["a name used twice", "tools.1.name", { tools: [getPrice, getPrice] }],
  ["parameters that are a list", "tools.0.parameters", { tools: [{ name: "f", parameters: [] }] }],
  [
    "properties that are a list",
    "tools.0.parameters",
    { tools: [{ name: "f", parameters: { properties: [] } }] },
  ],
  [
    "required that is no list of names",
    "tools.0.parameters",
    { tools: [{ name: "f", parameters: { required: [1] } }] },
  ],
  ["an unknown field", "tools.0.input_schema", { tools: [{ name: "f", input_schema: {} }] }],
  ["101 tools", "tools", { tools: Array.from({ length: 101 }, (_, n) => ({ name: `f${n}` })) }],
  ["two attempts", "max_attempts", { ...asked, max_attempts: 2 }],
  ["results: false", "results", { ...asked, results: false }],
  ["another language", "tools", { ...asked, language: "bash" }],
  ["tool_timeout alone", "tool_timeout", { tool_timeout: 5 }],
  ["tool_timeout and no tools", "tool_timeout", { tools: [], tool_timeout: 5 }],
];

export const toolRows: Row[] = [
  {
    rule: "`tools` reach the agent, with one attempt, results and a time limit of their own",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api, { ...asked, tool_timeout: 7 });
      const plain = await working(api, { tools: [] });
      await agent.result(lease_id);
      expect(await api.record(job_id)).toMatchObject({
        ...asked,
        tool_timeout: 7,
        max_attempts: 1,
        results: [],
      });
      expect(await api.record(plain.job_id)).not.toHaveProperty("tools");
      await api.submit(asked);
      const job = await agent.takeJob();
      const tools = { functions: [getPrice], timeout_s: limits.toolTimeoutDefaultS };
      expect(job).toMatchObject({ results: true, tools });
    },
  },
  ...each(
    refused,
    ([why]) => `\`tools\` with ${why} are 400 at that path`,
    async (api, [, path, fields]) => {
      expectFault(await api.post("/execute/async", { code: "x", ...fields }), path);
    },
  ),
  {
    rule: "A tool_timeout above max_timeout is 422",
    async check(api) {
      const fields = { code: "x", ...asked, tool_timeout: 86_400 };
      const reply = await api.post("/execute/async", fields);
      expect(reply.status).toBe(422);
      expect(problemOf(reply).errors?.[0]?.path).toBe("tool_timeout");
    },
  },
  {
    rule: "The same idempotency key with other `tools` is 409, with the same ones the same job",
    async check(api) {
      const key = { idempotency_key: crypto.randomUUID() };
      const first = await api.submit({ ...key, ...asked });
      const again = await api.submit({ ...key, ...asked, max_attempts: 1 });
      expect(again.job_id).toBe(first.job_id);
      for (const tools of [[], [{ ...getPrice, awaitable: true }]]) {
        const other = await api.post("/execute/async", { code: "print(1)", ...key, tools });
        expect(other.status).toBe(409);
      }
    },
  },
  ...each(
    ["rerun", "fork"],
    (what) => `A ${what} has its parent's \`tools\`, unless it gives others or none`,
    async (api, what) => {
      const { agent, job_id, lease_id } = await working(api, { ...asked, tool_timeout: 9 });
      await agent.result(lease_id);
      const code = what === "fork" ? { code: "y" } : {};
      const other = [{ name: "other" }];
      for (const [fields, functions] of [
        [{}, [getPrice]],
        [{ tools: other }, other],
        [{ tools: [] }, undefined],
      ] as const) {
        const reply = await api.post(`/jobs/${job_id}/${what}`, { ...code, ...fields });
        expect(reply.status).toBe(202);
        const { tools } = await agent.takeJob();
        expect(tools).toEqual(functions && { functions, timeout_s: 9 });
      }
    },
  ),
  {
    rule: "Each job of a batch has its own `tools`",
    async check(api) {
      const jobs = [{ code: "x", ...asked }, { code: "y" }];
      expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
      const agent = api.agent();
      const taken = [await agent.takeJob(), await agent.takeJob()];
      expect(taken.map(({ tools }) => tools?.functions)).toEqual([[getPrice], undefined]);
    },
  },
];
