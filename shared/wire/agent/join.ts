import { z } from "zod";

/** Messages with which an agent joins and renews its token, and the format of codes and tokens. */

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be a SHA-256 in 64 hex digits");

export const JoinCode = z
  .string()
  .regex(/^alj_[0-9a-f]{40}$/, "must be a join code: alj_ and 40 hex digits");

/** An agent's own token. Its host generates it and sends it to the API only. */
export const AgentToken = z
  .string()
  .regex(/^ala_[0-9a-f]{64}$/, "must be an agent's token: ala_ and 64 hex digits");

/** Shown on operators' terminals. */
export const HostName = z
  .string()
  .min(1)
  .max(128)
  .refine((name) => !/[\p{C}\p{Zl}\p{Zp}]/u.test(name), "must hold no control characters");

/**
 * `POST /agent/v1/join`, sent without a token. A repeated request gets the same answer, so a host that
 * lost the answer can send it again.
 */
export const JoinRequest = z.object({
  code: JoinCode,
  /** Hash of the token that the agent will present. */
  token_sha256: Sha256,
  /** The host's own name; used if the code gives it none. */
  name: HostName,
});
export type JoinRequest = z.infer<typeof JoinRequest>;

export const JoinReply = z.object({ agent: z.object({ id: z.uuid(), name: HostName }) });
export type JoinReply = z.infer<typeof JoinReply>;

/**
 * `POST /agent/v1/rotate`: the token with this hash replaces the presented token when it is first used.
 * A request that presents the new token itself only confirms it.
 */
export const RotateRequest = z.object({ token_sha256: Sha256 });
export type RotateRequest = z.infer<typeof RotateRequest>;
