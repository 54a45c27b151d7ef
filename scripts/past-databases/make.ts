import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient } from "@libsql/client";
import { dump } from "./dump.ts";
import { jobTypes, live } from "./life.ts";

/**
 * `sh scripts/run scripts/past-databases/make.ts <commit>…`: runs the API of each commit, lets it
 * work, and stores its database as SQL, named by its last migration. The first line, a comment, is
 * what it answered at the end.
 */
const project = fileURLToPath(new URL("../..", import.meta.url));
const target = join(project, "api/testing/past");
const [key, token] = ["api-key-0-0123456789abcd", "agent-token-0-0123456789"];

for (const commit of process.argv.slice(2)) await store(commit);

async function store(commit: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-past-"));
  const [code, data] = [join(folder, "code"), join(folder, "data")];
  try {
    mkdirSync(code);
    const archive = execFileSync("git", ["archive", commit], { cwd: project, maxBuffer: 2 ** 28 });
    execFileSync("tar", ["-x"], { cwd: code, input: archive });
    symlinkSync(resolve(project, "node_modules"), join(code, "node_modules"));
    const migrations = readdirSync(join(code, "api/store/migrations"));
    const last = migrations
      .filter((name) => name.endsWith(".sql"))
      .toSorted()
      .at(-1)!;
    const name = last.slice(0, 4);

    const vars = {
      PATH: process.env["PATH"],
      AIRLOCK_DATA_DIR: data,
      AIRLOCK_LOG_LEVEL: "warning",
    };
    const api = fork(join(code, "api/node.ts"), [], {
      cwd: code,
      execArgv: ["--import", "tsx"],
      env: {
        ...vars,
        AIRLOCK_PORT: "0",
        AIRLOCK_AGENT_TOKENS: token,
        AIRLOCK_API_AUTH_ENABLED: "true",
        AIRLOCK_API_KEYS: key,
        AIRLOCK_JOB_TYPES: JSON.stringify(jobTypes),
        AIRLOCK_LEASE_TTL_S: "600",
      },
    });
    const exited = once(api, "exit");
    const started = await Promise.race([once(api, "message"), exited.then(() => undefined)]);
    if (!started) throw new Error(`the API of ${commit} did not start`);
    const { url } = started[0] as { url: string };
    const answers = await live({ url, key, token }, name >= "0004");
    const invite = join(code, "scripts/agents.ts");
    if (existsSync(invite)) {
      const command = ["--import", "tsx", invite, "invite", "--name", "past-host"];
      execFileSync(process.execPath, command, { cwd: code, env: vars });
    }
    api.kill("SIGTERM");
    await exited;
    const client = createClient({ url: `file:${data}/airlock.db` });
    const text = `-- ${JSON.stringify(answers)}\n${await dump(client)}`;
    client.close();
    writeFileSync(join(target, `${name}.sql`), text);
    process.stdout.write(`${commit}: ${name}\n`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
