import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { programArgs } from "../../../shared/testing/program.ts";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { startCommandService } from "./testing/command-service.ts";

const { service, folder, script } = await startCommandService();

const commandLine = (args: readonly string[]): string =>
  [process.execPath, ...programArgs("clients/cli/main.ts"), ...args].join(" ");
const environment = (url: string) => ({
  ...process.env,
  AIRLOCK_URL: url,
  NO_COLOR: "1",
  XDG_CONFIG_HOME: folder,
});

/** What a person sees in a terminal of their own, without its colours. */
async function seen(url: string, ...args: string[]): Promise<string> {
  const [command, env] = [commandLine(args), environment(url)];
  return new Promise((resolve) => {
    // Another exit code than 0 is no failure here.
    execFile("script", ["-qec", command, "/dev/null"], { env }, (_, stdout) => {
      resolve(stdout.replaceAll("\r\n", "\n"));
    });
  });
}

test("in a terminal, run shows the job's address, its output, its result, and where files were saved", async () => {
  const path = script(
    "makes.py",
    "print('hello'); open('/output/a.txt', 'w').write('A'); open('/output/result.json', 'w').write('{\"n\": 1}')",
  );
  const shown = await seen(service.url, "run", "-o", join(folder, "out"), path);
  expect(shown.split("\n").slice(1)).toEqual([
    "hello",
    'output: {"n":1}',
    `saved ${join(folder, "out", "a.txt")}`,
    "",
  ]);
  expect(shown).toMatch(/^http:.*\/console\/executions\//);
});

test("in a terminal, a command says at once that the service does not answer", async () => {
  const nowhere = `http://127.0.0.1:${await reservePort()}`;
  const shown = await seen(nowhere, "ps");
  expect(shown).toMatch(
    /^http:\S+ does not answer \(nothing listens there\); trying again …\nairlock: /,
  );
});

test.each([
  ["Ctrl-C", "\x03"],
  ["Ctrl-D", "\x04"],
])("%s at the prompt for the key ends login, which stores nothing", async (_, pressed) => {
  const command = commandLine(["login", service.url]);
  const terminal = spawn("script", ["-qec", command, "/dev/null"], {
    env: environment(service.url),
  });
  const ended = once(terminal, "exit");
  let shown = "";
  for await (const part of terminal.stdout) {
    if (!shown.includes("API key") && `${shown}${part}`.includes("API key")) {
      terminal.stdin.write(pressed);
    }
    shown += String(part);
  }
  expect(await ended).toEqual([130, null]);
  expect(shown).toContain("airlock: nothing was stored");
  expect(existsSync(join(folder, "airlock"))).toBe(false);
});
