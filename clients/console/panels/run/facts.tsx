import type { ComponentChildren } from "preact";
import { addressOf } from "../../model/address.ts";
import { joinArguments } from "../../model/arguments.ts";
import { formatTime } from "../../model/time.ts";
import { formatDuration } from "../../model/time.ts";
import type { ExecutionRecord } from "../../service/records.ts";
import { SessionLink } from "../../parts/common.tsx";
import { copy } from "../../parts/copy.ts";

/** Everything else that the record says. */
export function Facts({ record }: { record: ExecutionRecord }) {
  const { resource_usage: usage, metadata, batch_id, session_id } = record;
  const facts: [string, ComponentChildren][] = [
    [
      "Id",
      <>
        <span class="id">{record.execution_id}</span>{" "}
        <button
          class="small"
          aria-label="Copy the id"
          onClick={() => void copy(record.execution_id)}
        >
          Copy
        </button>
      </>,
    ],
    [
      "Job type",
      <a href={addressOf("executions", { job_type: record.job_type })}>{record.job_type}</a>,
    ],
    ["Version", record.job_version],
    ["Language", record.language],
    ["Command", record.command && joinArguments(record.command)],
    ["Submitted", formatTime(record.created_at)],
    ["Not before", record.run_at && formatTime(record.run_at)],
    ["Started", record.started_at && formatTime(record.started_at)],
    ["Ended", record.ended_at && formatTime(record.ended_at)],
    ["Exit code", record.exit_code],
    ["CPU time", usage && formatDuration(usage.cpu_time_ms)],
    ["Memory", usage && `${usage.max_rss_mb.toFixed(1)} MiB at most`],
    ["Time limit", record.timeout && `${record.timeout} s`],
    ["Runtime", record.container_runtime],
    ["Sandbox", record.container_backend === "zygote" ? "forked" : null],
    ["Agent", record.status === "queued" ? null : record.attempts?.at(-1)?.agent],
    ["Attempts", attemptsOf(record)],
    ["Idempotency key", record.idempotency_key],
    ["Tenant", record.tenant],
    ["Correlation id", record.correlation_id && <span class="id">{record.correlation_id}</span>],
    ["Trace", record.traceparent && <span class="id">{record.traceparent}</span>],
    [
      "Session",
      session_id && (
        <>
          <SessionLink id={session_id} />, call {record.call}
        </>
      ),
    ],
    ["Context", record.context === "default" ? null : record.context],
    ["Batch", batch_id && <a href={addressOf("executions", { batch_id })}>{batch_id}</a>],
    ...Object.entries(metadata ?? {}).map(([name, value]): [string, ComponentChildren] => [
      name,
      <a href={addressOf("executions", { metadata: `${name}:${value}` })}>{value}</a>,
    ]),
  ];
  return (
    <dl class="facts">
      {facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function attemptsOf({ attempt, max_attempts: most }: ExecutionRecord): string | undefined {
  if (attempt === undefined || attempt === 0)
    return most === undefined ? undefined : `at most ${most}`;
  return most === undefined ? String(attempt) : `${attempt} of at most ${most}`;
}
