import type { ComponentChildren } from "preact";
import { addressOf } from "../model/address.ts";
import { formatDuration } from "../model/time.ts";
import { AddAgent, Agents } from "../panels/agents.tsx";
import { Age, Empty, ExecutionLink, Heading, Problem } from "../parts/common.tsx";
import { number, Table, wide } from "../parts/table.tsx";
import { Hosts } from "../panels/hosts.tsx";
import { timesOf } from "../panels/result.tsx";
import { ExecutionTable } from "./executions.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { getJob, getPool, type Listed, listExecutions } from "../service/records.ts";

/** Reasons that are asked for: one request each, within the rate limit of the service. */
const explained = 8;

interface Waiting extends Listed {
  reason: string | undefined;
}

/** The oldest waiting jobs with the reason of each, as far as one page of them shows. */
async function loadWaiting(signal: AbortSignal): Promise<Waiting[]> {
  const { items } = await listExecutions(new URLSearchParams({ status: "queued" }), 1000, signal);
  const oldest = items.toReversed().slice(0, explained);
  return Promise.all(
    oldest.map(async (item) => ({
      ...item,
      reason: (await getJob(item.execution_id, signal)).message,
    })),
  );
}

/** Agents and their work; waiting jobs and the reason of each. */
export function Queue() {
  const pool = useFeed("pool", getPool);
  const waiting = useFeed(`waiting ${Math.floor(clock.value / 20_000)}`, loadWaiting, () => true);
  const running = useFeed("running", (signal) =>
    listExecutions(new URLSearchParams({ status: "running" }), 20, signal),
  );
  const { data: stats, problem, refresh } = pool.value;
  const jobs = waiting.value.data;
  return (
    <>
      <Heading title="Queue and agents">
        <AddAgent />
      </Heading>
      <Problem text={problem} />
      {stats && (
        <div class="columns">
          <Figure name="waiting" value={stats.queue.pending} of={stats.queue.max} />
          <Figure name="running" value={stats.workers.running} of={stats.workers.max} />
          <Figure name="slots in use" value={`${Math.round(stats.utilization * 100)} %`} />
        </div>
      )}
      <h2>Agents</h2>
      {stats && <Agents agents={stats.agents} onChange={refresh} />}
      <h2>Waiting</h2>
      {jobs && jobs.length > 0 && <WaitingTable jobs={jobs} />}
      {jobs?.length === 0 && <Empty>No job waits.</Empty>}
      {stats && stats.queue.pending > explained && (
        <p>
          The oldest {explained} of {stats.queue.pending}.{" "}
          <a href={addressOf("executions", { status: "queued" })}>All that wait</a>
        </p>
      )}
      <h2>Running</h2>
      {running.value.data && running.value.data.items.length > 0 ? (
        <ExecutionTable items={running.value.data.items} />
      ) : (
        <Empty>No job runs.</Empty>
      )}
      <h2>Hosts</h2>
      <Hosts />
    </>
  );
}

interface FigureProps {
  name: ComponentChildren;
  value: number | string;
  of?: number;
}

export function Figure({ name, value, of }: FigureProps) {
  return (
    <div class="figure">
      <strong>
        {value.toLocaleString("en")}
        {of !== undefined && <span class="quiet"> of {of}</span>}
      </strong>
      <span class="quiet">{name}</span>
    </div>
  );
}

function WaitingTable({ jobs }: { jobs: Waiting[] }) {
  return (
    <Table columns={["Execution", "Job type", "Submitted", number("Waits"), wide("Why")]}>
      {jobs.map((job) => (
        <tr key={job.execution_id}>
          <td>
            <ExecutionLink id={job.execution_id} />
          </td>
          <td>{job.job_type}</td>
          <td class="quiet number-left">
            <Age at={job.created_at} />
          </td>
          <td class="number" data-name="waits">
            {formatDuration(timesOf(job, clock.value).waited)}
          </td>
          <td class="wide words">{job.reason}</td>
        </tr>
      ))}
    </Table>
  );
}
