import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline/promises";
import type { Command } from "commander";
import { connect } from "../../../typescript/src/index.ts";
import { consoleAddress } from "../jobs/console-address.ts";
import { describeKey, diagnose } from "../diagnose.ts";
import { exitCode, ExitError, UsageError } from "../exit.ts";
import { readText } from "../files/read-text.ts";
import { checkUrl, givenKey, writeSettings } from "../settings.ts";
import { colorOf } from "../terminal.ts";
import { addCommand, does, type Tool } from "../tool.ts";

/** Commands about the service itself. */
export function addService(program: Command): void {
  addCommand(program, "login", "store the address and the key for later commands")
    .argument("[url]", "address of the service")
    .action(
      does(async ({ settings, terminal, globals }: Tool, url: string | undefined) => {
        const address = checkUrl(url ?? settings.url);
        // A stored key may be the one to replace.
        const key = givenKey(globals, process.env) ?? (await askForKey());
        const stored = { url: address, ...(key !== "" && { key }) };
        const own = await connect(stored).api.getOwnKey({ retries: 0 });
        const whose = key === "" ? "" : `: ${describeKey(own)}`;
        terminal.note(`stored in ${writeSettings(stored, process.env)}${whose}`);
      }),
    );

  addCommand(program, "health", "show how the service is").action(
    does(async ({ airlock, terminal }: Tool) => {
      const health = await airlock.api.getHealth();
      const { queue_stats: queue } = health;
      if (terminal.json) terminal.document(health);
      else {
        terminal.line(
          `${colorOf(health.status, terminal.style)}  Airlock ${health.version} at ${airlock.url}`,
        );
        terminal.line(`queue   ${queue.pending} waiting of at most ${queue.max_queue_size}`);
        terminal.line(`running ${queue.running} of at most ${queue.max_workers}`);
        const engine = health.docker_available ? "available" : "not available";
        terminal.line(`engine  ${engine}${health.forks_available ? "; jobs are forked" : ""}`);
      }
      return health.status === "healthy" ? 0 : exitCode.failed;
    }),
  );

  addCommand(program, "doctor", "say what is wrong and how to mend it").action(
    does(async ({ terminal, settings }: Tool) => {
      // Without retries, which would print notes.
      const findings = await diagnose(connect(settings), settings);
      if (terminal.json) terminal.document(findings);
      for (const { ok, what, mend } of terminal.json ? [] : findings) {
        terminal.line(
          `${ok ? terminal.style("green", "ok") : terminal.style("red", "!!")}  ${what}`,
        );
        if (mend !== undefined) terminal.line(`    ${mend}`);
      }
      return findings.every(({ ok }) => ok) ? 0 : exitCode.failed;
    }),
  );

  addCommand(program, "open", "open the console")
    .argument("[job]", "id of a job to show, or the end of the id")
    .action(
      does(async ({ terminal, settings }: Tool, job: string | undefined) => {
        const { url } = settings;
        const address = job === undefined ? `${url}/console` : consoleAddress(url, job);
        terminal.line(address);
        if (process.stdout.isTTY) openInBrowser(address);
      }),
    );

  addCommand(
    program,
    "mcp",
    "serve the Model Context Protocol on standard input and output",
  ).action(
    does(async ({ settings }: Tool) => {
      // It is most of the program: no other command loads it.
      const { serveMcp } = await import("../../../mcp/serve-stdio.ts");
      serveMcp({ ...settings, version: program.version() ?? "" });
      // It ends with its input.
      await new Promise((resolve) => process.stdin.once("close", resolve));
    }),
  );

  addCommand(program, "api", "send any request, and print the answer")
    .argument("<method>", "GET, POST, PUT, DELETE …")
    .argument("<path>", "such as /executions?limit=1")
    .option("-d, --data <json>", "the body; @file or - reads it")
    .action(
      does(
        async (
          { airlock, terminal }: Tool,
          method: string,
          path: string,
          options: { data?: string },
        ) => {
          if (!path.startsWith("/")) throw new UsageError(`the path begins with a slash: /${path}`);
          const body = await readBody(options.data);
          const answer = await airlock.request(path, {
            method: method.toUpperCase(),
            ...(body !== undefined && { body, headers: { "Content-Type": "application/json" } }),
          });
          if (!answer.body) return;
          const type = answer.headers.get("Content-Type") ?? "";
          if (type.startsWith("application/json") && process.stdout.isTTY) {
            return terminal.document(await answer.json());
          }
          for await (const part of answer.body) await terminal.write(part as Uint8Array);
        },
      ),
    );
}

async function readBody(given: string | undefined): Promise<string | undefined> {
  if (given === undefined || !/^(-$|@)/.test(given)) return given;
  return readText(given === "-" ? given : given.slice(1));
}

/** Reads a key without showing it. */
async function askForKey(): Promise<string> {
  if (!process.stdin.isTTY) return (await readText("-")).trim();
  // It hides what is typed from here on, so the prompt comes after it.
  const hidden = createInterface({ input: process.stdin, terminal: true });
  process.stderr.write("API key (empty for none): ");
  // Ctrl-C and Ctrl-D close it.
  const closed = once(hidden, "close").then(() => undefined);
  const key = await Promise.race([hidden.question("").catch(() => undefined), closed]);
  hidden.close();
  process.stderr.write("\n");
  if (key === undefined) throw new ExitError(exitCode.interrupted, "nothing was stored");
  return key.trim();
}

function openInBrowser(address: string): void {
  const command = process.platform === "darwin" ? "open" : "xdg-open";
  spawn(command, [address], { stdio: "ignore", detached: true })
    .on("error", () => {})
    .unref();
}
