import type { MiddlewareHandler } from "hono";
import { AgentToken } from "../../../shared/wire/agent/join.ts";
import type { Deps } from "../../deps.ts";
import { unauthorized } from "../../errors.ts";
import {
  findToken,
  listTokenHashes,
  recordTokenUse,
  replaceToken,
} from "../../store/agents/agent-tokens.ts";
import type { AppEnv } from "../context.ts";
import { bearerToken, placeOf } from "./presented.ts";
import { type Holders, holders, usedEveryMs } from "./strangers.ts";

/** The tokens that agents joined with. */
export function joinedTokens(deps: Deps): Holders<{ id: string }> {
  const { db, now, shareRead } = deps;
  return holders(now, "agent tokens", {
    find: (hash) => lookUp(deps, hash),
    list: () => shareRead("tokens", () => listTokenHashes(db)),
  });
}

/** Requires an agent's own token or one of `agent_tokens`; an API key never opens the agents' endpoints. */
export function requireAgentToken(
  { config, sha256, clientAddress }: Deps,
  joined: Holders<{ id: string }>,
): MiddlewareHandler<AppEnv> {
  const configured = Promise.all(config.agent_tokens.map(async (token) => sha256(token)));
  return async (c, next) => {
    const token = bearerToken(c) ?? "";
    const hash = await sha256(token);
    const holder =
      placeOf(await configured, hash) >= 0
        ? hash
        : AgentToken.safeParse(token).success && (await joined.find(hash, clientAddress(c)))?.id;
    if (typeof holder !== "string") {
      throw unauthorized(
        "The agent's token is unknown or revoked. Send, as Authorization: Bearer, the one that it joined with, or one of the configured agent_tokens.",
      );
    }
    c.set("agentTokenHash", holder);
    await next();
  };
}

async function lookUp({ db, now }: Deps, hash: string): Promise<{ id: string } | undefined> {
  const row = await findToken(db, hash);
  if (!row) return undefined;
  if (row.nextHash === hash) await replaceToken(db, hash, now());
  else if ((row.lastUsedAt ?? 0) < now() - usedEveryMs) await recordTokenUse(db, row.id, now());
  return { id: row.id };
}
