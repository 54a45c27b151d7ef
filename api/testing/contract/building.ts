import { expect } from "vitest";
import { BuildResult } from "../../../shared/wire/build.ts";
import type { LeasedBuild } from "../../../shared/wire/agent/lease.ts";
import type { Reply, ScriptedAgent } from "../scripted-agent.ts";
import { type Api, body } from "./api.ts";

export const defaultImage = "python:3.13-slim";

/** A different image for each number. */
export const digest = (n: number): string => `sha256:${String(n).padStart(64, "0")}`;

export const success = {
  status: "built",
  digest: digest(1),
  python_version: "3.13.5",
  manifest_digest: null,
} as const;
export const broken = { type: "docker_error", message: "no space left", phase: "startup" } as const;
export const failure = (error: object) => ({ status: "failed", error });

interface Started {
  lease: LeasedBuild;
  /** The client's answer. */
  answer: Promise<Reply>;
}

/** Requests a build and lets an agent take it. */
export async function startBuild(
  api: Api,
  agent: ScriptedAgent,
  name: string,
  tag?: string,
): Promise<Started> {
  await agent.poll({ free_slots: 0 });
  const query = tag === undefined ? "" : `?version_tag=${tag}`;
  const answer = api.post(`/job-types/${name}/build${query}`);
  return { lease: await agent.takeBuild(), answer };
}

/** Builds a job type from beginning to end. */
export async function buildType(
  api: Api,
  agent: ScriptedAgent,
  name: string,
  changes: Partial<typeof success | { digest: string; python_version: string }>,
  tag?: string,
): Promise<BuildResult> {
  const { lease, answer } = await startBuild(api, agent, name, tag);
  await agent.postBuild(lease.lease_id, "result", { ...success, ...changes });
  const reply = await answer;
  expect(reply.status).toBe(200);
  return BuildResult.strict().parse(body(reply));
}

export const logChunk = (offset: number, text: string) => ({ offset, data_base64: btoa(text) });

/** An agent whose engine has these images. */
export async function agentWith(api: Api, ...images: string[]): Promise<ScriptedAgent> {
  const agent = api.agent();
  await agent.poll({ images, free_slots: 0 });
  return agent;
}
