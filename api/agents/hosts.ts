import type { JoinedHost } from "../../shared/wire/client/hosts.ts";
import type { Deps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import {
  askForRotation,
  type AgentTokenRow,
  listTokens,
  revokeToken,
} from "../store/agents/agent-tokens.ts";
import type { Actor } from "../store/audit.ts";
import { listAgents, setDraining, type AgentRow } from "../store/agents/agents.ts";

/** Every host that has joined, the oldest first. */
export async function listHosts({ db }: Deps): Promise<JoinedHost[]> {
  const [tokens, agents] = await Promise.all([listTokens(db), listAgents(db)]);
  return tokens.map((token) => describeHost(token, agents));
}

/** Voids a host's token. A repeat changes nothing. @throws AppError 404 for an unknown host. */
export async function revokeHost(deps: Deps, id: string, by: Actor): Promise<JoinedHost> {
  await revokeToken(deps.db, id, by);
  return wakeHost(deps, id);
}

/**
 * Asks a host to replace its token. The answers to its agents' polls tell them.
 *
 * @throws AppError 404 for an unknown host, 409 for a revoked one.
 */
export async function rotateHost(deps: Deps, id: string, by: Actor): Promise<JoinedHost> {
  const isAsked = await askForRotation(deps.db, id, by);
  const host = await wakeHost(deps, id);
  if (isAsked) return host;
  throw new AppError("conflict", `The token of ${host.name} is revoked: the host must join again.`);
}

/** Ends the waiting polls of a host's agents; returns the host. @throws AppError 404 for an unknown host. */
async function wakeHost(deps: Deps, id: string): Promise<JoinedHost> {
  const host = (await listHosts(deps)).find((joined) => joined.id === id);
  if (!host) throw notFound(`Host ${id}`);
  for (const agent of host.agents) deps.notifier.notify(`agent:${agent}`);
  return host;
}

/** Stops giving an agent new work, or starts again. @throws AppError 404 for an unknown agent. */
export async function drainAgent(
  deps: Deps,
  id: string,
  drains: boolean,
  by: Actor,
): Promise<void> {
  if (!(await setDraining(deps.db, id, drains, by))) throw notFound(`Agent ${id}`);
  if (!drains) deps.notifier.notify(`agent:${id}`);
}

function describeHost(token: AgentTokenRow, agents: AgentRow[]): JoinedHost {
  const { id, name, createdAt, lastUsedAt, revokedAt, rotationAskedAt } = token;
  return {
    id,
    name,
    joined_at: time(createdAt),
    last_used_at: lastUsedAt === null ? null : time(lastUsedAt),
    revoked_at: revokedAt === null ? null : time(revokedAt),
    ...(rotationAskedAt !== null && { rotation_asked_at: time(rotationAskedAt) }),
    agents: agents.filter(({ tokenHash }) => tokenHash === id).map((agent) => agent.id),
  };
}

const time = (ms: number): string => new Date(ms).toISOString();
