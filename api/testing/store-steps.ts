import type { Post } from "./store-posts.ts";

export const maxQueueSize = 3;
export const leaseTtlMs = 30_000;
export const agentIds = ["agent 0", "agent 1", "agent 2"];

/**
 * One step. A number that picks something counts from the latest one and wraps around.
 */
export type Step =
  | { do: "nothing" }
  | { do: "submit"; mode: "sync" | "async"; key: string | undefined; payload: string }
  | { do: "claim"; agent: number; count: number; replyLost: boolean }
  | { do: "redeliver"; agent: number; count: number; replyLost: boolean }
  | { do: "renew"; agent: number; alsoLease: number }
  | { do: "post"; what: Post; lease: number; body: number; byAnother: boolean }
  | { do: "cancel"; execution: number }
  | { do: "wait"; ms: number }
  | { do: "expire"; afterMs: number }
  | { do: "restart" }
  | { do: "cut power"; during: Step; writtenOfTen: number; garbage: boolean };

export type StepOf<D extends Step["do"]> = Extract<Step, { do: D }>;
