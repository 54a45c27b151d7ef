import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openBrowser } from "../../api/testing/browser.ts";
import { receiverSecret } from "../../api/testing/receiver.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { otherSecret } from "../../clients/testing/real-delivery.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { startCuttingProxy } from "../testing/cutting-proxy.ts";
import { needs } from "../testing/needs.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

const key = "key-0123456789abcdef";
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
  const typescript = resolve("scripts/e2e/.recipe-receiver.ts");
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
