import { randomUUID } from "node:crypto";
import { type AgentTokenRow, invite, listTokens, revokeToken } from "../../api/agents/agents.ts";
import { sha256 } from "../../api/platform/process.node.ts";
import { openDatabase } from "../../api/platform/sqlite.node.ts";
import { type Database, database } from "../../api/store/database.ts";
import { type Actor, shell } from "../../api/tenants/sql.ts";
import type { Config } from "../../shared/config/config.ts";
import { type AgentsCommand, agentsHelp, parseAgentsCommand } from "./arguments.ts";
import { OperatorError, readConfig, runMain, table } from "./command.ts";

/** Does what the operator asks for, and returns what to print. Throws OperatorError. */
async function runAgentsCommand(
  command: Exclude<AgentsCommand, { name: "help" }>,
  config: Config,
): Promise<string> {
  const client = await openDatabase(config);
  const db = database(client);
  try {
    if (command.name === "invite") return await describeInvitation(db, command);
    if (command.name === "list") return describeTokens(await listTokens(db));
    return await revoke(db, command.agent);
  } finally {
    client.close();
  }
}

async function describeInvitation(
  db: Database,
  { host, expiresInMs }: { host: string | null; expiresInMs: number },
): Promise<string> {
  const code = await invite({ db, sha256 }, { name: host, expiresInMs }, byShell());
  const until = new Date(Date.now() + expiresInMs).toISOString();
  return `${code}\n\nIt joins one host, until ${until}. On that host:\n  npm run agent -- join --url <address of this API> --code ${code}\n`;
}

function describeTokens(tokens: AgentTokenRow[]): string {
  const rows = tokens.map(({ id, name, createdAt, lastUsedAt, revokedAt }) => [
    id,
    name,
    time(createdAt),
    lastUsedAt === null ? "never" : time(lastUsedAt),
    revokedAt === null ? "-" : time(revokedAt),
  ]);
  return table([["ID", "NAME", "JOINED", "LAST USED", "REVOKED"], ...rows]);
}

async function revoke(db: Database, agent: string): Promise<string> {
  const open = (await listTokens(db)).filter(({ revokedAt }) => revokedAt === null);
  const [found, ...more] = open.filter(({ id, name }) => id === agent || name === agent);
  if (!found) {
    throw new OperatorError(`no agent ${agent} has a token; npm run agents -- list shows them`);
  }
  if (more.length > 0) {
    throw new OperatorError(
      `${more.length + 1} agents are called ${agent}: name one by its id, which npm run agents -- list shows`,
    );
  }
  await revokeToken(db, found.id, byShell());
  return `the token of ${found.name} (${found.id}) is void; what it was running goes to others when its leases end\n`;
}

const byShell = (): Actor => shell(randomUUID(), Date.now());

const time = (ms: number): string => new Date(ms).toISOString();

/** `npm run agents -- invite | list | revoke`: who may work for the configured service, while it runs. */
await runMain(async () => {
  const command = parseAgentsCommand(process.argv.slice(2));
  if (command.name === "help") process.stdout.write(agentsHelp);
  else process.stdout.write(await runAgentsCommand(command, readConfig(process.env)));
});
