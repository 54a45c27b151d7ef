import type { ExecutionErrorType, ExecutionPhase } from "../../../shared/wire/errors.ts";
import type { Relationship } from "../../../shared/wire/execution.ts";
import type { TerminalStatus } from "../../../shared/wire/execution.ts";
import type { WebhookType } from "../../../shared/wire/client/webhook-type.ts";
import type { WebhookEvent } from "../../../shared/wire/client/webhook.ts";
import type { z } from "zod";

/** What the trigger keeps of an execution. Times are epoch milliseconds. */
export interface EventData {
  job_type: string;
  attempt: number;
  created_at: number;
  started_at: number | null;
  exit_code: number | null;
  error_type: ExecutionErrorType | null;
  phase: ExecutionPhase | null;
  correlation_id: string;
  metadata: Record<string, string> | null;
  batch_id: string | null;
  session_id: string | null;
  parent_execution_id: string | null;
  relationship: z.infer<typeof Relationship> | null;
  traceparent: string | null;
}

/** An event as the store has it. */
export interface StoredEvent {
  tenant: string;
  executionId: string;
  type: WebhookType;
  data: string;
  createdAt: number;
}

/** Equal for all receivers and tries of an event, so that a receiver can ignore repeats. */
export function webhookId({ executionId }: Pick<StoredEvent, "executionId">): string {
  return `evt_${executionId}`;
}

/** The body of a call: the same text at every try. */
export function webhookBody(event: StoredEvent): string {
  return JSON.stringify(toEvent(event));
}

export function toEvent({
  tenant,
  executionId: id,
  type,
  data,
  createdAt,
}: StoredEvent): WebhookEvent {
  const kept = JSON.parse(data) as EventData;
  const { error_type, phase } = kept;
  return {
    type,
    timestamp: time(createdAt),
    data: {
      job_id: id,
      tenant,
      status: type.slice("execution.".length) as TerminalStatus,
      job_type: kept.job_type,
      attempt: kept.attempt,
      created_at: time(kept.created_at),
      started_at: kept.started_at === null ? null : time(kept.started_at),
      ended_at: time(createdAt),
      exit_code: kept.exit_code,
      error: error_type && phase ? { type: error_type, phase } : null,
      correlation_id: kept.correlation_id,
      ...(kept.metadata && { metadata: kept.metadata }),
      ...(kept.batch_id !== null && { batch_id: kept.batch_id }),
      ...(kept.session_id !== null && { session_id: kept.session_id }),
      ...(kept.parent_execution_id !== null && { parent_execution_id: kept.parent_execution_id }),
      ...(kept.relationship && { relationship: kept.relationship }),
      ...(kept.traceparent !== null && { traceparent: kept.traceparent }),
      links: { record: `/executions/${id}`, result: `/jobs/${id}/result` },
    },
  };
}

const time = (epochMs: number): string => new Date(epochMs).toISOString();
