import { z } from "zod";
import { ExecutionError } from "./errors.ts";
import { orNull } from "../or-null.ts";
import { Timestamp } from "./timestamp.ts";

/** How a lease can end without a result. */
const lostOutcomes = ["released", "agent_stopped", "agent_crashed", "lease_expired"] as const;
export type LostOutcome = (typeof lostOutcomes)[number];

export const AttemptOutcome = z.enum(["result", ...lostOutcomes]).meta({
  id: "AttemptOutcome",
  description:
    "result: the agent reported how the job ended; released: it gave the job back, and `error` says why; agent_stopped: it stopped in order; agent_crashed: its process died, as the next agent on its host found; lease_expired: the service had not heard of it for `lease_ttl_s`.",
});

export const Attempt = z
  .object({
    attempt: z.int().meta({
      description:
        "Which try it was. The next one has the same number if an agent that stopped had not begun.",
    }),
    agent_id: z.string().meta({ description: "Which start of an agent had the job." }),
    agent: z.string().nullable().meta({
      description: "Name of the agent; null if the service no longer knows it.",
      example: "host-1",
    }),
    claimed_at: Timestamp.meta({ description: "When the agent got the job." }),
    code_started_at: Timestamp.nullable().meta({
      description:
        "When the agent said that the code had begun. Agents do not say it of code that ends within 50 ms.",
    }),
    ended_at: Timestamp.nullable(),
    outcome: orNull(AttemptOutcome).meta({
      description: "Null while it runs, or if a version that kept no attempts ended it.",
    }),
    error: orNull(ExecutionError),
  })
  .meta({ id: "Attempt", description: "One try of a job by one agent." });
export type Attempt = z.infer<typeof Attempt>;
