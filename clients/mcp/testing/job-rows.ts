import { beforeEach, expect, test } from "vitest";
import { log } from "../../../api/testing/contract/working.ts";
import type { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import type { McpClient } from "./generations.ts";
import { key } from "./settings.ts";

export interface World {
  agent: ScriptedAgent;
  url: string;
}

/** The statements about jobs that take longer than their call, and about their tools. */
export function describeJobTools(world: () => World & { client: McpClient }): void {
  let client: McpClient;
  let agent: ScriptedAgent;
  beforeEach(() => {
    ({ client, agent } = world());
  });

  test("a job that outlives its call goes on, and get_job waits for its result", async () => {
    const { structuredContent: job } = await client.call("execute_code", {
      code: "1",
      wait_seconds: 0,
    });
    expect(job).toMatchObject({
      status: "queued",
      message: expect.stringContaining("get_job") as unknown,
    });
    const { lease_id } = await agent.takeJob();
    const waiting = client.call("get_job", { job_id: job?.["job_id"] });
    await agent.result(lease_id);
    expect((await waiting).structuredContent).toMatchObject({ status: "succeeded" });
  });

  test("cancel_job ends a job, and leaves one that has ended", async () => {
    const start = () => client.call("execute_code", { code: "1", wait_seconds: 0 });
    const { structuredContent: queued } = await start();
    const cancelled = await client.call("cancel_job", { job_id: queued?.["job_id"] });
    expect(cancelled.structuredContent).toMatchObject({ status: "cancelled" });
    const { structuredContent: ended } = await start();
    await agent.result((await agent.takeJob()).lease_id);
    const left = await client.call("cancel_job", { job_id: ended?.["job_id"] });
    expect(left.structuredContent).toMatchObject({ status: "succeeded" });
  });

  test("cancel_job waits for the end of a running job, which is no error", async () => {
    const { structuredContent: job } = await client.call("execute_code", {
      code: "1",
      wait_seconds: 0,
    });
    const { lease_id } = await agent.takeJob();
    const cancelled = client.call("cancel_job", { job_id: job?.["job_id"] });
    for (;;) {
      const { cancel } = await agent.poll({ free_slots: 0, wait_s: 2 });
      if (cancel.includes(lease_id)) break;
    }
    const error = { type: "cancelled", message: "", phase: "execution" } as const;
    await agent.result(lease_id, {
      status: "cancelled",
      exit_code: null,
      error,
      stdout_base64: btoa("so far\n"),
    });
    expect(await cancelled).toMatchObject({
      isError: false,
      structuredContent: { status: "cancelled", stdout: "so far\n" },
    });
  });

  test("progress shows the newest output, and a call that ends before its job has the output so far", async () => {
    const { promise: reported, resolve } = Promise.withResolvers<string>();
    const onprogress = ({ message = "" }: { message?: string | undefined }) => {
      if (message.includes("half way")) resolve(message);
    };
    const called = client.call("execute_code", { code: "1" }, { onprogress });
    const { lease_id, execution_id } = await agent.takeJob();
    await agent.post(lease_id, "started", { job_ref: null });
    await agent.post(lease_id, "logs", log(0, "half way\n"));
    expect(await reported).toContain(execution_id);
    const early = await client.call("get_job", { job_id: execution_id, wait_seconds: 0 });
    expect(early.structuredContent).toMatchObject({ status: "running", stdout: "half way\n" });
    await agent.result(lease_id);
    expect((await called).structuredContent).toMatchObject({ status: "succeeded" });
  });
}

/** The statement about cancelling; a proxy between client and service may hide that a client has gone. */
export function describeCancelling(connect: () => Promise<McpClient>, world: () => World): void {
  const statusOf = async (id: unknown) => {
    const headers = { Authorization: `Bearer ${key}` };
    const reply = await fetch(`${world().url}/jobs/${String(id)}`, { headers });
    return ((await reply.json()) as { status: string }).status;
  };

  test("a cancelled call ends its job", async () => {
    const { agent } = world();
    const client = await connect();
    const abort = new AbortController();
    const called = client.call("execute_code", { code: "1" }, { signal: abort.signal });
    called.catch(() => {});
    const { lease_id, execution_id } = await agent.takeJob();
    abort.abort("not wanted");
    await expect(called).rejects.toThrow("not wanted");
    for (;;) {
      const { cancel } = await agent.poll({ free_slots: 0, wait_s: 2 });
      if (cancel.includes(lease_id)) break;
    }
    const error = { type: "cancelled", message: "", phase: "execution" } as const;
    await agent.result(lease_id, { status: "cancelled", exit_code: null, error });
    expect(await statusOf(execution_id)).toBe("cancelled");
    await client.close();
  });
}
