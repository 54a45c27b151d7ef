import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { json } from "node:stream/consumers";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { examplesOf } from "../../clients/testing/examples-of.ts";
import { listen } from "../../shared/testing/listen.ts";
import { service, useTestService } from "../testing/use-test-service.ts";

useTestService();

type Message = { role: string; content?: string; tool_calls?: object[] };

/** A service of chat completions. Its model computes in three calls, and says what they returned. */
async function startModel() {
  const cells = ["x = 6", "print('six')", "x * 7"];
  return listen(
    createServer((request, response) => {
      void json(request).then((body) => {
        const { messages } = body as { messages: Message[] };
        const results = messages.filter(({ role }) => role === "tool");
        const code = cells[results.length];
        const call = { name: "run_python", arguments: JSON.stringify({ code }) };
        const tool_calls = [{ id: `call-${results.length}`, type: "function", function: call }];
        const said = results.map(({ content }) => content?.trim()).join(", ");
        const message = code
          ? { role: "assistant", tool_calls }
          : { role: "assistant", content: said };
        response.setHeader("Content-Type", "application/json");
        response.end(JSON.stringify({ choices: [{ message }] }));
      });
    }),
  );
}

async function chat(command: string, args: string[]): Promise<string> {
  await using model = await startModel();
  const env = {
    ...process.env,
    PYTHONPATH: resolve("clients/python/src"),
    LLM_URL: model.url,
    LLM_KEY: "key",
    LLM_MODEL: "model",
  };
  const ran = promisify(execFile)(command, args, { env });
  ran.child.stdin!.end("What is six times seven?\n");
  return (await ran).stdout;
}

const openSessions = async (): Promise<number> => {
  const answer = await fetch(`${service.url}/sessions?status=ready`);
  return ((await answer.json()) as { count: number }).count;
};

const examples = (language: string, page = "docs/guides/sessions.md") =>
  examplesOf(page, language, { url: service.url, key: "key-0123456789abcdef" });
/** The first example of the guide. */
const chatbot = (language: string): string => examples(language).blocks[0]!;

test("the chatbot in Python computes in one session, which ends with it", async () => {
  expect(await chat("python3", ["-c", chatbot("python")])).toBe("succeeded, six, 42\n");
  expect(await openSessions()).toBe(0);
});

test("the chatbot in TypeScript computes in one session, which ends with it", async () => {
  const file = resolve("scripts/e2e/.chatbot-example.ts");
  const client = '"../../clients/typescript/src/index.ts"';
  writeFileSync(file, chatbot("ts").replace('"airlock-exec"', client));
  try {
    expect(await chat("node", ["--import", "tsx", file])).toBe("succeeded, six, 42\n");
  } finally {
    rmSync(file);
  }
  expect(await openSessions()).toBe(0);
});

test("the other examples of the guide print what they say", async () => {
  const { blocks, prints } = examples("python");
  expect(prints).toHaveLength(4);
  const program = blocks.slice(1).join("\n");
  expect(await chat("python3", ["-c", program])).toBe(`${prints.join("\n")}\n`);
});

test("the session in the README prints what it says", async () => {
  const { program, prints } = examples("python", "README.md");
  expect(await chat("python3", ["-c", `import airlock\n${program}`])).toBe(`${prints[0]}\n`);
});
