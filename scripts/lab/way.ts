import { relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { WebSocket } from "undici";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { readArguments, readConfig, runMain, wrongArguments } from "../operate/command.ts";
import { setUp } from "../setup/set-up.ts";
import { startTestService } from "../testing/test-service.ts";

const command = "npm run way";
const help = `Usage: ${command}

Counts the TypeScript files, folders and functions that one warm POST /execute enters in the API and in the agent, with
V8's precise coverage, and lists the files. What timers enter meanwhile is left out: most requests do not enter it.
`;

type Entered = { readonly file: string; readonly functions: readonly string[] };
type Coverage = {
  result: {
    url: string;
    functions: { functionName: string; ranges: { count: number; startOffset: number }[] }[];
  }[];
};

const requests = 9;

/** A process's debugger. */
async function connectDebugger(port: number) {
  const targets = await fetch(`http://127.0.0.1:${port}/json`);
  const [target] = (await targets.json()) as [{ webSocketDebuggerUrl: string }];
  const socket = new WebSocket(target.webSocketDebuggerUrl);
  await new Promise((resolve) => {
    socket.addEventListener("open", resolve, { once: true });
  });
  let sent = 0;
  const send = (method: string, params = {}): Promise<unknown> => {
    const id = ++sent;
    socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve) => {
      socket.addEventListener("message", function answer({ data }) {
        const reply = JSON.parse(String(data)) as { id: number; result: unknown };
        if (reply.id !== id) return;
        socket.removeEventListener("message", answer);
        resolve(reply.result);
      });
    });
  };
  await send("Profiler.enable");
  await send("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  return {
    close: () => socket.close(),
    /** What has been entered since it was last asked. */
    async take(): Promise<Entered[]> {
      const { result } = (await send("Profiler.takePreciseCoverage")) as Coverage;
      return result.flatMap(({ url, functions }) => {
        const isOwn =
          url.startsWith("file:") && /\.tsx?$/.test(url) && !url.includes("node_modules");
        const entered = functions
          .filter(({ ranges }) => ranges[0]!.count > 0)
          .map(({ functionName, ranges }) => `${functionName}:${ranges[0]!.startOffset}`);
        if (!isOwn || entered.length === 0) return [];
        return { file: relative(process.cwd(), fileURLToPath(url)), functions: entered };
      });
    },
  };
}

const inspect = (port: number) => ({ NODE_OPTIONS: `--inspect=127.0.0.1:${port}` });

await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  if (args.length > 0) throw wrongArguments("it takes no arguments", command);
  const { dockerHost } = await setUp(readConfig(process.env));
  process.env["AIRLOCK_DOCKER_HOST"] = dockerHost;
  const [apiPort, agentPort] = [await reservePort(), await reservePort()];
  await using service = await startTestService({
    api: inspect(apiPort),
    key: "the-key-of-the-way",
  });
  await service.startAgent("agent", { AIRLOCK_WARM_POOL_SIZE: "", ...inspect(agentPort) });
  const execute = async (): Promise<void> => {
    const headers = { "Content-Type": "application/json", "X-API-Key": "the-key-of-the-way" };
    const body = JSON.stringify({ code: "print(1)" });
    const answer = await fetch(`${service.url}/execute`, { method: "POST", headers, body });
    if (!(await answer.text()).includes('"1\\n"')) throw new Error("the job failed");
    await sleep(300);
  };
  for (let n = 0; n < 20; n++) await execute();

  const processes = [await connectDebugger(apiPort), await connectDebugger(agentPort)];
  /** By file and function: how many requests entered it. */
  const seen = new Map<string, number>();
  for (let n = 0; n < requests; n++) {
    for (const each of processes) await each.take();
    await execute();
    const entered = (await Promise.all(processes.map((each) => each.take()))).flat();
    for (const { file, functions } of entered) {
      for (const name of functions) {
        const key = `${file} ${name}`;
        seen.set(key, (seen.get(key) ?? 0) + 1);
      }
    }
  }
  for (const each of processes) each.close();

  const often = [...seen].filter(([, times]) => times > requests / 2).map(([key]) => key);
  const files = new Set(often.map((key) => key.split(" ")[0]!));
  const folders = new Set([...files].map((file) => file.slice(0, file.lastIndexOf("/"))));
  for (const file of [...files].sort()) process.stdout.write(`${file}\n`);
  process.stdout.write(
    `one warm POST /execute enters ${files.size} TypeScript files in ${folders.size} folders, ${often.length} functions\n`,
  );
});
