import { expect, test } from "vitest";
import type { World } from "./job-rows.ts";
import type { McpClient } from "./generations.ts";

/** The statements about the tools of sessions. */
export function describeSessionTools(world: () => World & { client: McpClient }): void {
  async function createSession(): Promise<string> {
    const { client, agent } = world();
    agent.maxSessions = 4;
    const created = client.call("create_session", { idle_timeout: 60 });
    await agent.startSession();
    const { structuredContent, content } = await created;
    expect(structuredContent).toMatchObject({ status: "ready" });
    const id = structuredContent?.["session_id"] as string;
    expect(content[0]?.["text"]).toBe(`Session ${id}: ready.`);
    return id;
  }

  test("a session runs code with the files of its calls, shows values and pictures, and is closed", async () => {
    const { client, agent } = world();
    const session_id = await createSession();
    const called = client.call("run_in_session", {
      session_id,
      code: "table",
      files: [{ name: "tables/a.csv", text: "x,y\n" }],
      restart: true,
    });
    const { lease_id, code, call, files } = await agent.takeCall();
    expect(code).toBe("table");
    expect(call).toMatchObject({ number: 1, context: "default", restart: true });
    expect(files).toMatchObject([{ name: "tables/a.csv", to: "work" }]);
    const at = { stdout_at: 0, stderr_at: 0 };
    const picture = { "text/plain": "<Figure>", "image/png": btoa("a figure") };
    await agent.upload(lease_id, "out.csv", "x\n");
    await agent.result(lease_id, {
      stdout_base64: btoa("one\n"),
      items: [
        { number: 1, main: false, data: picture, ...at },
        { number: 2, main: true, data: { "text/plain": "42" }, ...at },
      ],
    });
    const { structuredContent, content } = await called;
    expect(structuredContent).toMatchObject({
      status: "succeeded",
      stdout: "one\n",
      results: ["<Figure>", "42"],
      files: [{ name: "out.csv" }],
    });
    expect(content[1]).toEqual({ type: "image", data: btoa("a figure"), mimeType: "image/png" });

    const closed = await client.call("close_session", { session_id });
    expect(closed.structuredContent).toEqual({ session_id, status: "ended" });
    const late = await client.call("run_in_session", { session_id, code: "1" });
    expect(late).toMatchObject({
      isError: true,
      _meta: { "airlock/problem": { code: "session_ended", reason: "deleted" } },
    });
  });

  test("code that runs longer than wait_seconds goes on, and get_job waits for its result", async () => {
    const { client, agent } = world();
    const session_id = await createSession();
    const early = await client.call("run_in_session", { session_id, code: "1", wait_seconds: 0 });
    const job_id = early.structuredContent?.["job_id"];
    expect(early.content[0]?.["text"]).toContain("get_job");
    const { lease_id, execution_id } = await agent.takeCall();
    expect(execution_id).toBe(job_id);
    const waiting = client.call("get_job", { job_id });
    await agent.result(lease_id);
    expect((await waiting).structuredContent).toMatchObject({ status: "succeeded" });
  });

  test("a session that cannot start yet says why it waits", async () => {
    const { client } = world();
    const { structuredContent } = await client.call("create_session", { wait_seconds: 0 });
    expect(structuredContent).toMatchObject({
      status: "queued",
      message: expect.any(String) as unknown,
    });
    await client.call("close_session", { session_id: structuredContent?.["session_id"] });
  });

  test("a session that does not exist is refused", async () => {
    const { client } = world();
    const session_id = crypto.randomUUID();
    for (const [tool, more] of [
      ["run_in_session", { code: "1" }],
      ["close_session", {}],
    ] as const) {
      expect(await client.call(tool, { session_id, ...more })).toMatchObject({
        isError: true,
        _meta: { "airlock/problem": { code: "not_found" } },
      });
    }
  });
}
