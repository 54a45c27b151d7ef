import { join } from "node:path";
import { recordAgent } from "../store/agents/agents.ts";
import { database } from "../store/database.ts";
import { ScriptedAgent } from "./scripted-agent.ts";
import { agentIds } from "./store-steps.ts";
import { openIn } from "./temp-store.ts";

export const tokenOf = (agentId: string): string => `token of ${agentId}`;

/** Makes a file with a schema and agents, which every run copies. */
export async function makeStart(folder: string): Promise<string> {
  const client = await openIn(folder);
  for (const id of agentIds) {
    const status = new ScriptedAgent("", "").status();
    status.agent.id = status.agent.name = id;
    await recordAgent(database(client), status, tokenOf(id), 0);
  }
  await client.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  client.close();
  return join(folder, "airlock.db");
}
