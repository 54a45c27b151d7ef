import { expect } from "vitest";
import { AnswersReply } from "../../../shared/wire/agent/items.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { ToolCalls } from "../../../shared/wire/tool-call.ts";
import { Follower } from "../follower.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";
import { body, expectFault, problemOf } from "./api.ts";
import { each, on } from "./row.ts";
import { served } from "./serving.ts";
import { toolCall } from "./tool-calls.ts";
import { asked } from "./tools.ts";

const answers = async (agent: ScriptedAgent, lease: string) => {
  const reply = await agent.get(`/leases/${lease}/answers?after=0&wait_s=20`);
  return AnswersReply.parse(body(reply)).answers;
};

const refused: [why: string, path: string, fields: object][] = [
  ["a name that is a keyword", "tools.0.name", { code: "x", tools: [{ name: "class" }] }],
  ["a command", "tools", { command: ["ls"], ...asked }],
  ["no code", "tools", { restart: true, ...asked }],
  ["tool_timeout alone", "tool_timeout", { code: "x", tool_timeout: 5 }],
];

export const sessionToolRows = on("with sessions", [
  {
    rule: "POST /sessions/{id}/execute with `tools` brings events, among them the tool calls, whose answers reach the agent; without events it is 400",
    async check(api) {
      const { id, agent } = await served(api);
      const path = `/sessions/${id}/execute`;
      const request = { code: "x", ...asked };
      const unseen = await api.post(path, request);
      expectFault(unseen, "tools");
      expect(problemOf(unseen).detail).toContain(`${path}/async`);
      const headers = { Accept: "text/event-stream" };
      await using live = await Follower.open(api.url, path, headers, request);
      const { lease_id, ...call } = await agent.takeCall();
      const tools = { functions: asked.tools, timeout_s: limits.toolTimeoutDefaultS };
      expect(call).toMatchObject({ results: true, tools, call: { number: 1 } });
      await agent.post(lease_id, "items", { items: [toolCall(1)] });
      const { data } = await live.until(({ event }) => event === "tool_call");
      expect(data).toMatchObject({ job_id: call.execution_id, ...toolCall(1) });
      const given = { result: 380 };
      expect((await api.post(`/jobs/${data.job_id}/tool-calls/1`, given)).status).toBe(200);
      expect(await answers(agent, lease_id)).toEqual([{ number: 1, result_json: "380" }]);
      await agent.result(lease_id);
      expect((await live.rest()).at(-1)).toMatchObject({ event: "end" });
    },
  },
  {
    rule: "A call of a session has its own `tools` and tool calls: the next one has none of them, and an answer that comes then is 409",
    async check(api) {
      const { id, agent } = await served(api);
      const submit = async (fields: object) => {
        const reply = await api.post(`/sessions/${id}/execute/async`, { code: "x", ...fields });
        return SubmittedJob.parse(body(reply)).job_id;
      };
      const first = await submit({ ...asked, tool_timeout: 7 });
      const second = await submit({});
      expect(await api.record(first)).toMatchObject({ ...asked, tool_timeout: 7 });
      const { lease_id } = await agent.takeCall();
      await agent.post(lease_id, "items", { items: [toolCall(1)] });
      const calls = async (job: string) =>
        ToolCalls.parse(body(await api.get(`/jobs/${job}/tool-calls`))).calls;
      expect(await calls(first)).toEqual([toolCall(1)]);
      const { jobs } = await agent.resultAndTake(lease_id);
      expect(jobs[0]).toMatchObject({ execution_id: second });
      expect(jobs[0]).not.toHaveProperty("tools");
      expect(await calls(second)).toEqual([]);
      const answer = (job: string) => api.post(`/jobs/${job}/tool-calls/1`, { result: 1 });
      expect([(await answer(first)).status, (await answer(second)).status]).toEqual([409, 404]);
    },
  },
  ...each(
    refused,
    ([why]) => `A call of a session that has \`tools\` with ${why} is 400 at that path`,
    async (api, [, path, fields]) => {
      const { id } = await served(api);
      expectFault(await api.post(`/sessions/${id}/execute/async`, fields), path);
    },
  ),
]);
