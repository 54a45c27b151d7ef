import type { ScriptedAgent } from "../scripted-agent.ts";
import type { Api } from "./api.ts";

export const dockerError = { type: "docker_error", message: "gone", phase: "startup" } as const;
export const failure = { type: "value_error", message: "", phase: "execution" } as const;
export const log = (offset: number, text: string) => ({
  stream: "stdout",
  offset,
  data_base64: btoa(text),
});

export const release = (agent: ScriptedAgent, lease: string) =>
  agent.post(lease, "release", { error: dockerError });

/** An agent with a job of its own. */
export async function working(api: Api, fields: Record<string, unknown> = {}) {
  const { job_id } = await api.submit(fields);
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  return { agent, job_id, lease_id };
}
