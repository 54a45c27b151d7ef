import type { ExecutionRecord } from "../../../typescript/src/index.ts";
import { plain } from "../terminal.ts";
import { age, between, bytes, duration } from "../words.ts";

export const row = (name: string, value: string): string => `${name.padEnd(10)} ${plain(value)}`;

/**
 * A record as lines for people.
 *
 * @param reason - What the job waits for.
 */
export function* describeRecord(record: ExecutionRecord, reason?: string): Generator<string> {
  const { status, error, timing, resource_usage: usage, artifacts = [], metadata = {} } = record;
  yield row("job", record.execution_id);
  yield row(
    "status",
    status + (record.exit_code === null ? "" : ` (exit code ${record.exit_code})`),
  );
  if (reason) yield row("reason", reason);
  if (error) yield row("error", `${error.type}: ${error.message}`);
  if (record.compile) yield row("compiler", describeCompilation(record.compile));
  for (const warning of record.warnings ?? []) yield row("warning", warning);
  if (record.tenant) yield row("tenant", record.tenant);
  yield row("job type", `${record.job_type} ${record.job_version}`);
  yield row("submitted", `${record.created_at} (${age(record.created_at)} ago)`);
  yield row("waited", between(record.created_at, record.started_at ?? record.ended_at));
  if (record.started_at) yield row("ran", between(record.started_at, record.ended_at));
  for (const attempt of record.attempts ?? []) {
    yield row("attempt", describeAttempt(attempt, status));
  }
  if (timing) {
    const phases = Object.entries(timing).filter(([, ms]) => typeof ms === "number");
    yield row(
      "phases",
      phases
        .map(([name, ms]) => `${name.replace(/_ms$/, "")} ${duration(ms as number)}`)
        .join(", "),
    );
  }
  if (usage)
    yield row(
      "usage",
      Object.entries(usage)
        .map(([name, value]) => `${name} ${value}`)
        .join(", "),
    );
  if (record.parent_execution_id) yield row("parent", record.parent_execution_id);
  for (const [name, value] of Object.entries(metadata)) yield row("metadata", `${name}=${value}`);
  for (const { name, size_bytes } of artifacts)
    yield row("artifact", `${name} (${bytes(size_bytes)})`);
  if (record.output) yield row("output", JSON.stringify(record.output));
}

/** "exit code 1 after 31 ms". */
function describeCompilation({ exit_code: code, ms }: NonNullable<ExecutionRecord["compile"]>) {
  return `${code === null ? "killed" : `exit code ${code}`} after ${duration(ms)}`;
}

type Attempt = NonNullable<ExecutionRecord["attempts"]>[number];

/** "1 on host-1: lease expired after 3 min (its code began after 120 ms)". */
function describeAttempt(attempt: Attempt, status: ExecutionRecord["status"]): string {
  const { outcome, error, claimed_at, code_started_at, ended_at } = attempt;
  const isOwn = outcome === null || outcome === "result";
  const end = ended_at === null ? "running" : isOwn ? status : outcome.replace("_", " ");
  const took = `${ended_at === null ? "for" : "after"} ${between(claimed_at, ended_at)}`;
  const begun =
    code_started_at && ` (its code began after ${between(claimed_at, code_started_at)})`;
  const why = !isOwn && error ? `: ${error.type}: ${error.message}` : "";
  const holder = attempt.agent ?? attempt.agent_id;
  return `${attempt.attempt} on ${holder}: ${end} ${took}${begun ?? ""}${why}`;
}
