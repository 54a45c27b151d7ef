import { beforeAll, beforeEach, expect, test } from "vitest";
import type { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import type { McpClient } from "./generations.ts";
import { describeJobTools, type World } from "./job-rows.ts";
import { describeSessionTools } from "./session-rows.ts";
import { key, toolNames } from "./settings.ts";

/** The statements that hold for every client, over every transport. */
export function describeClient(connect: () => Promise<McpClient>, world: () => World): void {
  let client: McpClient;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    client = await connect();
    return () => client.close();
  });
  beforeEach(() => {
    ({ agent } = world());
  });
  test("tools are listed with the job types, their packages and limits", async () => {
    const tools = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(toolNames);
    for (const part of ["- ml: Python 3", "numpy==2.3.4", "300 s", "at most 600 s", "/output/"]) {
      expect(tools[0]?.description).toContain(part);
    }
  });

  test("numbers reach the code, and come back, as they were written", async () => {
    const numbers = '{"big":1152921504606846976,"minus":-0.0,"one":1.0,"list":[1e400,[2.50]]}';
    const call = (message: object) =>
      fetch(`${world().url}/mcp`, {
        method: "POST",
        headers: {
          Authorization: `Bearer ${key}`,
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
        },
        body: JSON.stringify(message).replaceAll('"NUMBERS"', numbers),
      });
    const params = {
      name: "execute_code",
      arguments: { code: "1", timeout: 30, input_data: "NUMBERS" },
    };
    for (const isBatch of [false, true]) {
      const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params };
      const called = call(isBatch ? [message] : message);
      const { lease_id, input_json } = await agent.takeJob();
      expect(input_json).toBe(numbers);
      await agent.result(lease_id, { output_json: numbers });
      const answer = await (await called).text();
      expect(answer).toContain(`"output":${numbers}`);
      expect(answer).toContain(JSON.stringify(numbers).slice(1, -1));
    }
  });

  test("a message with too many values is refused before its tool sees it", async () => {
    const values = Array.from({ length: 100_000 }, () => 1);
    const reply = await fetch(`${world().url}/mcp`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { values } }),
    });
    expect(reply.status).toBe(400);
    const text = await reply.text();
    expect(text).toContain("params.values");
    expect(text).toContain("it has more than 100000 keys and values");
  });

  test("code runs, and its text, output, pictures and files come back", async () => {
    const called = client.call("execute_code", { code: "print(1)", input_data: { a: 1 } });
    const { lease_id, code } = await agent.takeJob();
    expect(code).toBe("print(1)");
    await agent.upload(lease_id, "plot.png", "a picture");
    await agent.upload(lease_id, "data/a b.csv", "x,y\n");
    await agent.upload(lease_id, "large.png", "p".repeat(1024 * 1024 + 1));
    await agent.result(lease_id, {
      stdout_base64: btoa("one\n"),
      stderr_base64: btoa("two\n"),
      output_json: '{"three":3}',
    });
    const { content, structuredContent, isError } = await called;
    expect(isError).toBeFalsy();
    const id = structuredContent?.["job_id"] as string;
    const csv = `airlock://jobs/${id}/artifacts/data/a%20b.csv`;
    expect(structuredContent).toMatchObject({
      status: "succeeded",
      exit_code: 0,
      stdout: "one\n",
      stderr: "two\n",
      output: { three: 3 },
    });
    expect(structuredContent?.["files"]).toHaveLength(3);
    expect(content[0]?.["text"]).toMatch(/succeeded[^]*one[^]*two[^]*"three":3/);
    expect(content).toContainEqual({
      type: "image",
      data: btoa("a picture"),
      mimeType: "image/png",
    });
    expect(content).toContainEqual(
      expect.objectContaining({ type: "resource_link", name: "data/a b.csv", uri: csv }),
    );
    expect(content).toContainEqual(
      expect.objectContaining({ type: "resource_link", name: "large.png", size: 1024 * 1024 + 1 }),
    );

    expect((await client.read(csv)).contents[0]?.text).toBe("x,y\n");
    const listed = await client.call("list_artifacts", { job_id: id });
    expect(listed.structuredContent?.["files"]).toContainEqual({
      name: "data/a b.csv",
      size_bytes: 4,
      content_type: expect.stringContaining("text/csv") as unknown,
      uri: csv,
    });
    const none = await client.call("read_artifact", { job_id: id, name: "missing" });
    expect(none).toMatchObject({
      isError: true,
      _meta: { "airlock/problem": { code: "not_found" } },
    });
    const missing = client.read(`airlock://jobs/${id}/artifacts/missing`);
    await expect(missing).rejects.toThrow(/no file missing/);
  });

  test("files, stdin and args reach the code", async () => {
    const first = client.call("execute_code", { code: "1" });
    const { lease_id: firstLease } = await agent.takeJob();
    await agent.upload(firstLease, "table.csv", "x,y\n");
    await agent.result(firstLease);
    const { structuredContent: earlier } = await first;
    const { file_id } = (await (
      await fetch(`${world().url}/files?name=model.bin`, {
        method: "POST",
        headers: { Authorization: `Bearer ${key}` },
        body: "a model",
      })
    ).json()) as { file_id: string };

    const called = client.call("execute_code", {
      code: "1",
      language: "bash",
      stdin: "one\n",
      args: ["--two", ""],
      files: [
        { name: "a/text.txt", text: "ä" },
        { name: "bytes.bin", base64: "AP8A" },
        { name: "model.bin", file_id },
        { name: "table.csv", artifact: { job_id: earlier?.["job_id"], name: "table.csv" } },
      ],
    });
    const { lease_id, program, stdin, args, files = [] } = await agent.takeJob();
    expect([program?.file, stdin, args]).toEqual(["main.sh", "one\n", ["--two", ""]]);
    const contents = files.map(async ({ name, sha256 }) => {
      const { text } = await agent.get(`/leases/${lease_id}/files/${sha256}`);
      return [name, text];
    });
    expect(Object.fromEntries(await Promise.all(contents))).toEqual({
      "a/text.txt": "ä",
      "bytes.bin": "\0\ufffd\0",
      "model.bin": "a model",
      "table.csv": "x,y\n",
    });
    await agent.result(lease_id);
    expect((await called).structuredContent).toMatchObject({ status: "succeeded" });
  });

  test.each([
    [{ name: "../up", text: "" }, /files\.0\.name.*\.\./],
    [{ name: "data.json", text: "" }, /files\.0\.name.*data\.json/],
    [{ name: "two", text: "", base64: "" }, /files\.0.*exactly one/],
    [{ name: "none" }, /files\.0.*exactly one/],
    [{ name: "gone", file_id: crypto.randomUUID() }, /files\.0\.file_id.*expired/],
    [{ name: "path", path: "/etc/passwd" }, /path/],
  ])(
    "a file that is not valid is refused with the path of its field: %j",
    async (file, message) => {
      const called = await client.call("execute_code", { code: "1", files: [file] });
      expect(called.isError).toBe(true);
      expect(called.content[0]?.["text"]).toMatch(message);
    },
  );

  test("Python runs as a cell: values come as text, pictures as pictures", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id, results } = await agent.takeJob();
    expect(results).toBe(true);
    const at = { stdout_at: 0, stderr_at: 0 };
    const picture = { "text/plain": "<Figure>", "image/png": btoa("a figure") };
    await agent.result(lease_id, {
      items: [
        { number: 1, main: false, data: picture, ...at },
        { number: 2, main: true, data: { "text/plain": "42" }, ...at },
      ],
    });
    const { content, structuredContent } = await called;
    expect(structuredContent).toMatchObject({ results: ["<Figure>", "42"] });
    expect(content[0]?.["text"]).toContain("--- results\n<Figure>\n42");
    expect(content[1]).toEqual({ type: "image", data: btoa("a figure"), mimeType: "image/png" });
    const other = client.call("execute_code", { code: "1", language: "bash" });
    const job = await agent.takeJob();
    expect(job.results).toBeUndefined();
    await agent.result(job.lease_id);
    await other;
  });

  test("a result shows at most 512 KiB of pictures, and names all files in its text", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id } = await agent.takeJob();
    for (const [name, kiB] of [
      ["a.png", 400],
      ["b.png", 1024],
      ["c.png", 100],
    ] as const) {
      await agent.upload(lease_id, name, "p".repeat(kiB * 1024));
    }
    await agent.result(lease_id);
    const { content, structuredContent } = await called;
    expect(content.map(({ type }) => type)).toEqual(["text", "image", "resource_link", "image"]);
    expect(content[0]?.["text"]).toMatch(/b\.png \(image\/png, 1048576 bytes\)/);
    const whole = await client.call("read_artifact", {
      job_id: structuredContent?.["job_id"],
      name: "b.png",
    });
    expect(whole.content).toMatchObject([{ type: "image", data: btoa("p".repeat(1024 * 1024)) }]);
  });

  test("long files of text are read in parts that end at whole characters", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id } = await agent.takeJob();
    const text = `a${"é".repeat(15_000)}€😀`;
    await agent.upload(lease_id, "long.txt", text);
    await agent.upload(lease_id, "bytes.bin", new Uint8Array([0, 255, 0]));
    await agent.result(lease_id);
    const { structuredContent: job } = await called;
    let read = "";
    for (let offset: unknown = 0; offset !== undefined;) {
      const part = await client.call("read_artifact", {
        job_id: job?.["job_id"],
        // Models also give the path at which the code wrote it.
        name: offset === 0 ? "/output/long.txt" : "long.txt",
        offset,
      });
      read += part.structuredContent?.["text"] as string;
      offset = part.structuredContent?.["next_offset"];
    }
    expect(read).toBe(text);
    const binary = await client.call("read_artifact", {
      job_id: job?.["job_id"],
      name: "bytes.bin",
    });
    expect(binary.content).toMatchObject([
      { type: "text", text: expect.stringContaining('"artifact"') as unknown },
      { type: "resource_link", name: "bytes.bin" },
    ]);
    const uri = binary.content[1]?.["uri"] as string;
    expect((await client.read(uri)).contents[0]?.blob).toBe("AP8A");
  });

  test("code that failed is a result with its error; all its text has at most 20,000 characters", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id, {
      status: "failed",
      exit_code: 1,
      error: { type: "value_error", message: "no such value", phase: "execution" },
      stdout_base64: btoa(`head${"o".repeat(100_000)}tail`),
      stderr_base64: btoa("e".repeat(3000)),
    });
    const { content, structuredContent, isError } = await called;
    expect(isError).toBe(true);
    expect(structuredContent).toMatchObject({
      status: "failed",
      stderr: "e".repeat(3000),
      error: { type: "value_error", message: "no such value" },
    });
    const text = content[0]?.["text"] as string;
    expect(text.length).toBeLessThanOrEqual(20_000);
    expect(text.length).toBeGreaterThan(19_000);
    expect(text).toMatch(/no such value[^]*heado+\n\[… \d+ or more characters[^]*otail/);
  });

  test.each([
    ["execute_code", { code: "1", timeout: 601 }, /600/, "timeout_too_long"],
    ["execute_code", {}, /^code: is required$/, "invalid_request"],
    ["execute_code", { source: "1" }, /\nsource: is not a field of this/, "invalid_request"],
    ["execute_code", { code: "1", wait_seconds: 51 }, /wait_seconds/, "invalid_request"],
    ["get_job", { job_id: crypto.randomUUID() }, /no job|does not exist|not found/i, "not_found"],
    ["get_job", { job_id: "x" }, /job_id/, "invalid_request"],
    ["read_artifact", { job_id: crypto.randomUUID(), name: "a" }, /./, "not_found"],
  ])(
    "wrong arguments of %s give a result with a text for the model and a problem for programs: %j",
    async (tool, given, words, code) => {
      const { isError, content, _meta } = await client.call(tool, given);
      expect(isError).toBe(true);
      expect(content[0]?.["text"]).toMatch(words);
      expect(_meta).toMatchObject({ "airlock/problem": { code } });
    },
  );

  test("an unknown tool is an error that names the tools", async () => {
    await expect(client.call("run_python", {})).rejects.toThrow(/run_python[^]*execute_code/);
  });

  test("no schema of a tool repeats the pattern of an id", async () => {
    expect(JSON.stringify(await client.listTools())).not.toContain("[0-9a-f");
  });

  describeJobTools(() => ({ ...world(), client }));
  describeSessionTools(() => ({ ...world(), client }));
}
