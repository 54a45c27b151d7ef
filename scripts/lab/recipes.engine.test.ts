import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { json } from "node:stream/consumers";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openBrowser } from "../../api/testing/browser.ts";
import { endpointsOf, type OpenApiDocument } from "../../api/testing/openapi-document.ts";
import { receiverSecret } from "../../api/testing/receiver.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { examplesOf } from "../../clients/testing/programs.ts";
import { otherSecret } from "../../clients/testing/services.ts";
import { listen } from "../../shared/testing/http.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { needs } from "../testing/needs.ts";
import { startCuttingProxy } from "../testing/proxies.ts";
import {
  service,
  startTestService,
  type TestService,
  useTestService,
} from "../testing/test-service.ts";

const key = "key-0123456789abcdef";

describe("recipes", () => {
  const run = promisify(execFile);
  let folder: string;
  let service: TestService;
  let ports: string[];
  beforeAll(async () => {
    folder = tempFolder();
    ports = [String(await reservePort()), String(await reservePort())];
    const endpoints = ports.map((port, n) => {
      const url = `http://127.0.0.1:${port}/`;
      return [`endpoint-${n}`, { url, secrets: [receiverSecret, otherSecret] }];
    });
    service = await startTestService({
      key,
      api: {
        AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify(Object.fromEntries(endpoints)),
        AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
      },
    });
    await service.startAgent();
  });
  afterAll(() => service[Symbol.asyncDispose]());

  /** The examples of a guide in a language. */
  function examples(guide: string, language: string): string[] {
    const text = readFileSync(`docs/guides/${guide}.md`, "utf8");
    return [...text.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, "gm"))].map(
      ([, block = ""]) => block,
    );
  }

  const env = (url: string) => ({
    ...process.env,
    AIRLOCK_URL: url,
    AIRLOCK_KEY: key,
    PYTHONPATH: resolve("clients/python/src"),
  });
  const lines = (count: number) => Array.from({ length: count }, (_, n) => `line ${n}\n`).join("");

  test(
    "the shell's recipe shows the whole output once, over connections that break",
    needs("curl and jq"),
    async () => {
      await using proxy = await startCuttingProxy(service.url);
      // The first connection is the submission's.
      proxy.cutNext({}, ...[10, 700, 1_000, 900].map((answer) => ({ answer })));
      const [recipe = ""] = examples("recipes", "sh");
      const { stdout, stderr } = await run("bash", ["-c", recipe], {
        cwd: folder,
        env: env(proxy.url),
      });
      expect(stdout).toBe(`${lines(8)}succeeded\n`);
      expect(proxy.cuts()).toBe(4);
      expect(stderr).toMatch(/^after: the beginning\nafter: /);
    },
  );

  test("the pipeline's jobs read what the one before wrote, and are found again", async () => {
    const [pipeline = ""] = examples("recipes", "python");
    const ran = await run("python3", ["-c", pipeline], { env: env(service.url) });
    const last = "most expensive: coffee\n";
    expect(ran.stdout).toBe(`fetch ran: 2 rows\nclean ran: sum 8\nreport ran: report.txt\n${last}`);
    const again = await run("python3", ["-c", pipeline], { env: env(service.url) });
    expect(again.stdout).toBe(
      `fetch has run before\nclean has run before\nreport has run before\n${last}`,
    );
  });

  test(
    "the browser's recipe shows every event once, over connections that break; the key is in no address",
    needs("chromium"),
    async () => {
      const [follow = ""] = examples("live-output", "js");
      const id = await service.submit(`for n in range(8): print("line", n)`);
      await service.ended(id);
      await using proxy = await startCuttingProxy(service.url);
      const browser = await openBrowser();
      try {
        const page = await browser.newPage();
        const addresses: string[] = [];
        page.on("request", (request) => addresses.push(request.url()));
        await page.goto(`${proxy.url}/docs`);
        const shown = `(async () => {
        ${follow}
        const events = [];
        await follow("${id}", "${key}", (event) => events.push(event));
        return events;
      })()`;
        const whole = (await page.evaluate(shown)) as { event: string; data: { text?: string } }[];
        expect(whole.at(-1)?.event).toBe("end");
        expect(whole.map(({ data }) => data.text ?? "").join("")).toBe(lines(8));
        proxy.cutNext({ answer: 60 }, { answer: 700 }, { answer: 900 });
        expect(await page.evaluate(shown)).toEqual(whole);
        expect(proxy.cuts()).toBe(3);
        expect(addresses.filter((address) => address.includes(key))).toEqual([]);
        await expect(page.evaluate(shown.replace(key, "wrong-key-0123456"))).rejects.toThrow("401");
      } finally {
        await browser.close();
      }
    },
  );

  test("both receivers print the events of jobs, with either secret, and refuse forged calls", async () => {
    const python = join(folder, "receiver.py");
    writeFileSync(python, examples("recipes", "python")[1]!);
    const typescript = resolve("scripts/lab/.recipe-receiver.ts");
    const program = examples("recipes", "ts")[0]!;
    const client = '"../../clients/typescript/src/index.ts"';
    writeFileSync(typescript, program.replace('"airlock-exec"', client));
    const commands = [
      ["python3", python],
      ["node", "--import", "tsx", typescript],
    ];
    const receivers = commands.map(([command = "", ...args], n) => {
      const secrets = [receiverSecret, `${otherSecret} whsec_AAAA`][n];
      const child = spawn(command, args, {
        env: { ...env(service.url), SECRET: secrets, PORT: ports[n] },
        stdio: ["ignore", "pipe", "ignore"],
      });
      return { child, exited: once(child, "exit") };
    });
    try {
      for (const port of ports) {
        const forged = (): Promise<number | undefined> =>
          fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: "{}" }).then(
            ({ status }) => status,
            () => undefined,
          );
        await waitUntil("it refuses a forged call", async () => (await forged()) === 400);
      }
      const id = await service.submit("print(1)");
      for (const { child } of receivers) {
        let told = "";
        for await (const line of createInterface(child.stdout)) {
          told = line;
          if (line.endsWith(id)) break;
        }
        expect(told).toBe(`execution.succeeded ${id}`);
      }
    } finally {
      for (const { child, exited } of receivers) {
        child.kill("SIGKILL");
        await exited;
      }
      rmSync(typescript);
    }
  });
});

describe("chatbot", () => {
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
    const file = resolve("scripts/lab/.chatbot-example.ts");
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
});

describe("llms", () => {
  test(
    "the examples of /llms.txt run as they are, and every endpoint that it names exists",
    needs("curl and jq"),
    async () => {
      await using service = await startTestService({ key });
      await service.startAgent();
      const answer = await service.send("GET", "/llms.txt");
      expect(answer.headers.get("Content-Type")).toMatch("text/plain");

      const examples = [...answer.text.matchAll(/^```sh\n([^]*?)^```/gm)].map(([, text]) => text!);
      const env = { ...process.env, AIRLOCK_URL: service.url, AIRLOCK_KEY: key };
      const outputs = await Promise.all(
        examples.map((text) => promisify(execFile)("bash", ["-ec", text], { env })),
      );
      const [run, later] = outputs.map(({ stdout }) => stdout);
      expect(JSON.parse(run!)).toMatchObject({ success: true, stdout: "42\n" });
      expect(later).toMatch(/"status":"succeeded".*"name":"a.txt".*}done$/);

      const { json } = await service.send<OpenApiDocument>("GET", "/openapi.json");
      const known = endpointsOf(json).map(({ method, path }) => `${method} ${path}`);
      const named = [...answer.text.matchAll(/`((?:GET|POST) \/[^`\s]*)/g)].map(
        ([, call]) => call!,
      );
      const anyName = (call: string) => call.replaceAll(/\{\w+\}/g, "{}");
      expect(named.length).toBeGreaterThan(5);
      expect(named.map(anyName).filter((call) => !known.map(anyName).includes(call))).toEqual([]);
    },
  );
});
