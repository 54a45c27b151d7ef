import { z } from "zod";

/** How an agent joins, renews its token, and what codes and tokens look like. */

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be a SHA-256 in 64 hex digits");

export const JoinCode = z
  .string()
  .regex(/^alj_[0-9a-f]{40}$/, "must be a join code: alj_ and 40 hex digits");

/** An agent's own token. Its host makes it, and shows it to the API alone. */
export const AgentToken = z
  .string()
  .regex(/^ala_[0-9a-f]{64}$/, "must be an agent's token: ala_ and 64 hex digits");

/** Shown on operators' terminals. */
export const HostName = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[^\p{C}\p{Zl}\p{Zp}]*$/u, "must hold no control characters");

/**
 * `POST /agent/v1/join`, with no token yet. The same request again is answered the same, so that a
 * host whose answer was lost repeats it.
 */
export const JoinRequest = z.object({
  code: JoinCode,
  /** Of the token that the agent will present. */
  token_sha256: Sha256,
  /** What the host calls itself, where the code gives it no name. */
  name: HostName,
});
export type JoinRequest = z.infer<typeof JoinRequest>;

export const JoinReply = z.object({ agent: z.object({ id: z.uuid(), name: HostName }) });
export type JoinReply = z.infer<typeof JoinReply>;

/**
 * `POST /agent/v1/rotate`: the token with this hash takes the place of the presented one as soon as
 * it is used. Presented with that token itself, the request only confirms it.
 */
export const RotateRequest = z.object({ token_sha256: Sha256 });
export type RotateRequest = z.infer<typeof RotateRequest>;
