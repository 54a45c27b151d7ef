import { randomUUID } from "node:crypto";
import { invite } from "../../api/agents/tokens.ts";
import { sha256 } from "../../api/platform/hash.node.ts";
import { openDatabase } from "../../api/platform/libsql.node.ts";
import {
  type AgentTokenRow,
  listTokens,
  revokeToken,
} from "../../api/store/agents/agent-tokens.ts";
import { type Actor, shell } from "../../api/store/audit.ts";
import { type Database, database } from "../../api/store/database.ts";
import type { Config } from "../../shared/config/config.ts";
import { OperatorError } from "../command/operator-error.ts";
import { table } from "../command/table.ts";
import type { AgentsCommand } from "./command.ts";

/** Does what the operator asks for, and returns what to print. Throws OperatorError. */
export async function runAgentsCommand(
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
