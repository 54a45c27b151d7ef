import { z } from "zod";

/** Why a session has ended. */
export const endReasons = [
  "deleted",
  "idle",
  "lifetime",
  "agent_lost",
  "agent_stopped",
  "out_of_memory",
  "engine_lost",
  "start_failed",
] as const;

export const EndReason = z.enum(endReasons).meta({
  id: "SessionEndReason",
  description:
    "deleted: a client ended it; idle: no call for `idle_timeout`; lifetime: its time is over; agent_lost: its agent died or was cut off; agent_stopped: its agent was stopped; out_of_memory: its processes together had more than the job type's memory_limit; engine_lost: its sandbox broke; start_failed: no interpreter could be started.",
});
export type EndReason = z.infer<typeof EndReason>;
