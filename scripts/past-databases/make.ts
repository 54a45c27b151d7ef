import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient } from "@libsql/client";
import { version } from "../../api/version.ts";
import { dump } from "./dump.ts";
import { jobTypes, live } from "./life.ts";

/**
 * `sh scripts/run scripts/past-databases/make.ts`: runs the API of this version, lets it work, and
 * stores its database as SQL under the version's name. The first line, a comment, is what the API
 * answered at the end. Run it for each release that changes the schema.
 */
const project = fileURLToPath(new URL("../..", import.meta.url));
const [key, token] = ["api-key-0-0123456789abcd", "agent-token-0-0123456789"];

const folder = mkdtempSync(join(tmpdir(), "airlock-past-"));
try {
  const vars = {
    PATH: process.env["PATH"],
    AIRLOCK_DATA_DIR: folder,
    AIRLOCK_LOG_LEVEL: "warning",
  };
  const tsx = ["--import", "tsx"];
  const api = fork(join(project, "api/node.ts"), [], {
    cwd: project,
    execArgv: tsx,
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
  if (!started) throw new Error("the API did not start");
  const { url } = started[0] as { url: string };
  const answers = await live({ url, key, token });
  const invite = [...tsx, "scripts/agents.ts", "invite", "--name", "past-host"];
  execFileSync(process.execPath, invite, { cwd: project, env: vars });
  api.kill("SIGTERM");
  await exited;
  const client = createClient({ url: `file:${folder}/airlock.db` });
  const text = `-- ${JSON.stringify(answers)}\n${await dump(client)}`;
  client.close();
  writeFileSync(join(project, `api/testing/past/${version}.sql`), text);
} finally {
  rmSync(folder, { recursive: true });
}
