import { formatDuration, formatTime } from "../../model/time.ts";
import { Status } from "../../parts/common.tsx";
import { number, Table, wide } from "../../parts/table.tsx";
import { clock } from "../../service/clock.ts";
import type { Attempt, ExecutionRecord } from "../../service/records.ts";

/** Every attempt of a job, once one was lost. */
export function Attempts({ record }: { record: ExecutionRecord }) {
  const { attempts = [] } = record;
  if (!attempts.some(isLost)) return null;
  return (
    <section aria-label="Attempts">
      <h2>Attempts</h2>
      <Table columns={["Attempt", "Agent", "Began", number("Took"), wide("End")]}>
        {attempts.map((attempt) => (
          <tr key={attempt.claimed_at + attempt.agent_id}>
            <td class="number-left" data-name="attempt">
              {attempt.attempt}
            </td>
            <td class="strong" title={attempt.agent_id}>
              {attempt.agent ?? attempt.agent_id}
            </td>
            <td class="quiet number-left">{formatTime(attempt.claimed_at)}</td>
            <td class="number" data-name="took">
              {formatDuration(lengthOf(attempt))}
            </td>
            <td class="words">
              <End attempt={attempt} record={record} />
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

const isLost = ({ outcome }: Attempt): boolean => outcome !== null && outcome !== "result";

const lengthOf = ({ claimed_at, ended_at }: Attempt): number =>
  (ended_at === null ? clock.value : Date.parse(ended_at)) - Date.parse(claimed_at);

const words = {
  released: "given back by the agent",
  agent_stopped: "the agent was stopped",
  agent_crashed: "the agent crashed",
  lease_expired: "the agent was not heard of until its lease expired",
} as const;

function End({ attempt, record }: { attempt: Attempt; record: ExecutionRecord }) {
  const { outcome, error, ended_at: endedAt, code_started_at: begunAt } = attempt;
  if (outcome === null || outcome === "result") {
    return <Status status={endedAt === null ? "running" : record.status} />;
  }
  const hasBegun = begunAt !== null || error?.phase === "execution";
  const when = hasBegun ? "while its code ran" : "before its code was known to run";
  return (
    <>
      {words[outcome]}, {when}
      {error && `: ${error.message}`}
    </>
  );
}
