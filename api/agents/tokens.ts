import { AgentToken, type JoinReply, type JoinRequest } from "../../shared/wire/agent/join.ts";
import type { Deps } from "../deps.ts";
import { AppError, unauthorized } from "../errors.ts";
import {
  addJoinCode,
  exchangeCode,
  findToken,
  setNextTokenHash,
  readOrders,
  recordTokenUse,
  replaceToken,
} from "../store/agents/agent-tokens.ts";
import type { Actor } from "../store/audit.ts";

/** A token that was found is cached for this long, so that a busy agent's posts need no query each. */
const believedMs = 1000;
const believedMax = 10_000;
/** Resolution of the recorded time of last use. */
const usedEveryMs = 60_000;

/**
 * Returns the id of the agent's token that a request carries; undefined if it is none. A revoked token
 * is refused within a second. Each client address has a limited number of look-ups of unknown tokens;
 * agents with a known token at that address are not affected.
 */
export function agentTokens(
  deps: Deps,
): (token: string, hash: string, client: string) => Promise<string | undefined> {
  const { now } = deps;
  const believed = new Map<string, { readonly id: string; readonly at: number }>();
  const strangers = createStrangerLimit(now);
  return async (token, hash, client) => {
    const known = believed.get(hash);
    if (known && isRecent(known.at, now())) return known.id;
    if (!AgentToken.safeParse(token).success) return undefined;
    if (!known) strangers.refuse(client);
    const id = await lookUp(deps, hash);
    if (id === undefined) {
      believed.delete(hash);
      strangers.count(client);
      return undefined;
    }
    if (believed.size >= believedMax) believed.clear();
    believed.set(hash, { id, at: now() });
    return id;
  };
}

const unknownPerMinute = 30;
const minuteMs = 60_000;

/** Counts the unknown tokens of each client address, in this process. */
function createStrangerLimit(now: () => number) {
  const windows = new Map<string, { count: number; readonly endsAt: number }>();
  return {
    /** @throws AppError 429 for a client that has presented too many. */
    refuse(client: string): void {
      const window = windows.get(client);
      if (!window || window.endsAt <= now() || window.count < unknownPerMinute) return;
      throw new AppError(
        "rate_limited",
        `More than ${unknownPerMinute} unknown agent tokens in a minute; wait for the seconds that Retry-After says.`,
        {},
        { "Retry-After": String(Math.ceil((window.endsAt - now()) / 1000)) },
      );
    },
    count(client: string): void {
      const window = windows.get(client);
      if (window && window.endsAt > now()) window.count += 1;
      else {
        if (windows.size >= believedMax) windows.clear();
        windows.set(client, { count: 1, endsAt: now() + minuteMs });
      }
    },
  };
}

/** False for a time in the future: the clock was set back. */
function isRecent(at: number, now: number): boolean {
  return at <= now && now < at + believedMs;
}

async function lookUp({ db, now }: Deps, hash: string): Promise<string | undefined> {
  const row = await findToken(db, hash);
  if (!row) return undefined;
  if (row.nextHash === hash) await replaceToken(db, hash, now());
  else if ((row.lastUsedAt ?? 0) < now() - usedEveryMs) await recordTokenUse(db, row.id, now());
  return row.id;
}

/**
 * Returns when the agent was asked to replace its token; null if it is not asked.
 *
 * @throws AppError 401 when the token of a waiting agent has been revoked.
 */
export async function refuseRevoked({ db }: Deps, tokenId: string): Promise<number | null> {
  const { revokedAt, rotationAskedAt } = (await readOrders(db, tokenId)) ?? {};
  if (typeof revokedAt === "number") throw unauthorized("The agent's token was revoked.");
  return rotationAskedAt ?? null;
}

/** Makes a join code. One host can use it once, until it expires. Only its hash is stored. */
export async function invite(
  { db, sha256 }: Pick<Deps, "db" | "sha256">,
  { name, expiresInMs }: { name: string | null; expiresInMs: number },
  by: Actor,
): Promise<string> {
  const digits = Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  );
  const code = `alj_${digits.join("")}`;
  const expiresAt = by.at + expiresInMs;
  await addJoinCode(db, { codeHash: await sha256(code), name, expiresAt }, by);
  return code;
}

/** @throws AppError 401 when the code is unknown, expired or used by another host. */
export async function join(
  { db, newId, now, sha256, log }: Deps,
  { code, token_sha256, name }: JoinRequest,
): Promise<JoinReply> {
  const token = { id: newId(), tokenHash: token_sha256, name };
  const agent = await exchangeCode(db, await sha256(code), token, now());
  if (!agent) {
    throw unauthorized(
      "The join code is unknown, used or expired. Ask the API's operator for a new one: npm run agents -- invite.",
    );
  }
  log.info("agent {name} ({id}) has joined", agent);
  return { agent };
}

/** @throws AppError 409 when the presented token is not one that an agent joined with. */
export async function rotate({ db }: Deps, tokenId: string, nextHash: string): Promise<void> {
  const known = await findToken(db, nextHash);
  if (known?.id === tokenId) return;
  if (known || !(await setNextTokenHash(db, tokenId, nextHash))) {
    throw new AppError(
      "conflict",
      "Only the token of an agent that joined can be rotated; a configured one is changed in agent_tokens.",
    );
  }
}
