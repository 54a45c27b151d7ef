import type { JoinReply, JoinRequest } from "../../shared/wire/agent/join.ts";
import type { Deps } from "../deps.ts";
import { AppError, unauthorized } from "../errors.ts";
import {
  addJoinCode,
  exchangeCode,
  findToken,
  setNextTokenHash,
  readOrders,
} from "../store/agents/agent-tokens.ts";
import type { Actor } from "../store/audit.ts";

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
