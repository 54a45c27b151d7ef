import { describe, expect, test } from "vitest";
import { service, useTestService } from "../testing/use-test-service.ts";

const key = "key-0123456789abcdef";

// Only forked jobs have /mnt/data.
useTestService(
  { key, api: { AIRLOCK_COMPAT: "librechat", AIRLOCK_COMPAT_KEY: key } },
  { AIRLOCK_CONTAINER_BACKEND: "zygote" },
);

const base = () => `${service.url}/compat/librechat`;
interface Answer {
  session_id: string;
  stdout: string;
  stderr: string;
  files: { id: string; name: string; storage_session_id: string }[];
}
const post = (fields: object, path = "/exec") =>
  fetch(`${base()}${path}`, { method: "POST", body: JSON.stringify(fields) });
async function exec(fields: object): Promise<Answer> {
  const answer = await post(fields);
  expect(answer.status).toBe(200);
  return (await answer.json()) as Answer;
}
const file = (answer: Answer, name: string) => answer.files.find((one) => one.name === name)!;
async function content({ storage_session_id, id }: Answer["files"][number]): Promise<string> {
  return (await fetch(`${base()}/download/${storage_session_id}/${id}`)).text();
}

test("files go from an upload to code, from code to other code, and back; each keeps its place until it changes", async () => {
  const form = new FormData();
  form.append("file", new Blob(["x = 6\n"]), "lib.py");
  form.append("file", new Blob(["a"]), "deep/a.txt");
  const uploaded = await fetch(`${base()}/upload/batch`, { method: "POST", body: form });
  const given = (await uploaded.json()) as {
    storage_session_id: string;
    files: { fileId: string; filename: string }[];
  };
  const files = given.files.map(({ fileId: id, filename: name }) => {
    return { id, name, storage_session_id: given.storage_session_id };
  });
  const code = `import lib, sys
print(lib.x * 7, sys.argv[1:])
open("/mnt/data/deep/a.txt", "a").write("b")
open("/home/user/new.txt", "w").write("n")`;
  const first = await exec({ lang: "py", code, args: ["1"], files });
  expect([first.stdout, first.stderr]).toEqual(["42 ['1']\n", ""]);
  const left = (name: string) => ({
    id: expect.any(String) as string,
    name,
    storage_session_id: first.session_id,
  });
  expect(first.files).toEqual([
    left("deep/a.txt"),
    { ...files[0], inherited: true },
    left("new.txt"),
  ]);
  expect(await content(file(first, "deep/a.txt"))).toBe("ab");

  const second = await exec({
    lang: "bash",
    code: "cat lib.py deep/a.txt new.txt; rm new.txt; exit 3",
    files: first.files,
  });
  expect(second.stdout).toBe("x = 6\nabn");
  expect(second.files.map(({ name }) => name)).toEqual(["deep/a.txt", "lib.py"]);
  expect(second.files).toMatchObject(files.map(() => ({ inherited: true })));
});

test.each([
  ["an exception", { lang: "py", code: "1/0" }, /ZeroDivisionError: division by zero\n$/],
  ["the time limit", { lang: "bash", code: "sleep 60", timeout: 900 }, /at its time limit.\n$/],
])("%s is in stderr", async (_what, fields, words) => {
  expect(await exec(fields)).toMatchObject({
    stdout: "",
    stderr: expect.stringMatching(words) as string,
    files: [],
  });
});

test("a language that the image lacks is 400", async () => {
  const answer = await post({ lang: "go", code: "x" });
  expect(answer.status).toBe(400);
  expect(await answer.json()).toEqual({ error: expect.stringContaining("go") as string });
});

describe("code that calls tools of the client", () => {
  interface Told {
    status: string;
    continuation_token: string;
    tool_calls: { id: string; name: string; input: unknown }[];
    stdout: string;
    error: string;
  }
  async function run(fields: object): Promise<Told> {
    const answer = await post(fields, "/exec/programmatic");
    expect(answer.status).toBe(200);
    return (await answer.json()) as Told;
  }
  const tools = [
    {
      name: "get-weather",
      description: "The weather",
      parameters: { type: "object", properties: { city: { type: "string" } } },
    },
  ];

  test("waits for each, gets its result or its error, and ends with what it printed", async () => {
    const code = `import asyncio
print(await get_weather(city="x"))
print(await asyncio.gather(get_weather(city="a"), get_weather(city="b"), return_exceptions=True))`;
    const first = await run({ code, tools, timeout: 15_000 });
    const call = { id: expect.any(String) as string, name: "get-weather", input: { city: "x" } };
    expect(first).toMatchObject({ status: "tool_call_required", tool_calls: [call] });
    const answers = (told: Told, results: object[]) => ({
      continuation_token: told.continuation_token,
      tool_results: told.tool_calls.map(({ id }, n) => ({ call_id: id, ...results[n] })),
    });
    const second = await run(answers(first, [{ result: { sky: "é" }, is_error: false }]));
    expect(second.tool_calls.map(({ input }) => input)).toEqual([{ city: "a" }, { city: "b" }]);
    const failed = { result: null, is_error: true, error_message: "no b" };
    const last = await run(answers(second, [{ result: 1, is_error: false }, failed]));
    expect(last).toMatchObject({
      status: "completed",
      stdout: "{'sky': 'é'}\n[1, ToolError('no b')]\n",
    });
  });

  test("what the code raises is an error, and an unknown token is 400", async () => {
    const failed = await run({ code: "print(1)\n1/0", tools });
    expect(failed).toMatchObject({
      status: "error",
      error: expect.stringContaining("division by zero") as string,
      stdout: "1\n",
    });
    const wrong = { continuation_token: "no", tool_results: [] };
    expect((await post(wrong, "/exec/programmatic")).status).toBe(400);
  });
});
