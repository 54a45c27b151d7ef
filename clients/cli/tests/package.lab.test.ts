import { execFile } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NodeProcess, startNode } from "../../../api/testing/start-node.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { tempFolder } from "../../../shared/testing/test-file.ts";
import { shellFunction } from "../../testing/command.ts";
import { completionScripts } from "../completion.ts";

describe("package", () => {
  const run = promisify(execFile);
  let folder: string;
  let api: NodeProcess;
  beforeAll(async () => {
    folder = tempFolder();
    api = await startNode();
  });
  afterAll(() => api.close());

  test("npm pack's package installs the command airlock in an empty folder", async () => {
    await run("npm", ["pack", "--ignore-scripts=false", "--pack-destination", folder], {
      cwd: "clients/cli",
    });
    rmSync("clients/cli/dist", { recursive: true });
    const [archive] = readdirSync(folder);
    await run("npm", ["install", "--no-audit", "--no-fund", `./${archive}`], { cwd: folder });
    const airlock = join(folder, "node_modules/.bin/airlock");
    const { stdout: version } = await run(airlock, ["--version"]);
    expect(version).toBe("0.1.0\n");
    const env = { ...process.env, XDG_CONFIG_HOME: folder, AIRLOCK_URL: api.url };
    const { stdout } = await run(airlock, ["--json", "ps"], { env });
    expect(JSON.parse(stdout)).toEqual([]);
  });
});

describe("completion", () => {
  const run = promisify(execFile);
  const nowhere = "http://127.0.0.1:1";

  /** What a zsh without a configuration chooses from, for a line whose last word is being typed. */
  async function offeredByZsh(...words: string[]): Promise<string[]> {
    const script = `${shellFunction(nowhere)}
${completionScripts["zsh"]}
compadd() { shift \${@[(i)--]}; print -rl -- "$@" }
_files() { print -r -- files }
words=(airlock ${words.join(" ")}) CURRENT=$#words
eval "$_comps[airlock]"`;
    const { stdout } = await run("zsh", ["-f", "-c", script]);
    return stdout.trim().split("\n");
  }

  describe("zsh", needs("zsh"), () => {
    test("completes commands, subcommands, options and files, also where nothing has set up its completion", async () => {
      expect(await offeredByZsh("ru")).toEqual(["run"]);
      expect(await offeredByZsh("agents", "in")).toEqual(["invite"]);
      expect(await offeredByZsh("run", "--job")).toEqual(["--job-type"]);
      expect(await offeredByZsh("run", "''")).toEqual(["files"]);
    });
  });

  /** What fish offers for a line. */
  async function offeredByFish(line: string): Promise<string[]> {
    const script = `${shellFunction(nowhere, "fish")}
${completionScripts["fish"]}
complete -C 'airlock ${line}'`;
    const { stdout } = await run("fish", ["--no-config", "-c", script]);
    return stdout.trim().split("\n");
  }

  describe("fish", needs("fish"), () => {
    test("completes commands, subcommands, options and files, and says what they are", async () => {
      expect(await offeredByFish("ru")).toEqual([
        "run\trun a file, and show its output as it happens",
      ]);
      // In which order is the matter of fish: 3.6 does not sort.
      expect((await offeredByFish("completion ")).sort()).toEqual(["bash", "fish", "zsh"]);
      expect(await offeredByFish("run --job")).toEqual(["--job-type\tjob type"]);
      expect(await offeredByFish("run pack")).toContainEqual(
        expect.stringMatching(/^package.json/),
      );
    });
  });
});
