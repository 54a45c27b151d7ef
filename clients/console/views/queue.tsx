import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { timesOf } from "../model/phases.ts";
import { formatCount, formatDuration, withLocalTimes } from "../model/time.ts";
import { AddAgent, Agents } from "../panels/agents.tsx";
import { Age, Empty, ExecutionLink, Heading, Loading, Problem } from "../parts/common.tsx";
import { number, Table, wide } from "../parts/table.tsx";
import { Hosts } from "../panels/hosts.tsx";
import { ExecutionTable } from "./executions.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { getJob, getPool, type Listed, listExecutions } from "../service/records.ts";

/** Reasons that are asked for: one request each, within the rate limit of the service. */
const explained = 8;

interface Waiting extends Listed {
  reason: string | undefined;
}

const explainedMs = 20_000;
const shownRunning = 20;

/** The oldest waiting jobs, the last of the list, with the reason of each. */
async function loadWaiting(signal: AbortSignal): Promise<Waiting[]> {
  const { queue } = await getPool(signal);
  const offset = String(Math.max(0, queue.pending - explained));
  const query = new URLSearchParams({ status: "queued", offset });
  // Some more, as others may have come meanwhile.
  const { items } = await listExecutions(query, 100, signal);
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
  const waiting = useFeed("waiting", loadWaiting, undefined, explainedMs);
  const running = useFeed("running", (signal) =>
    listExecutions(new URLSearchParams({ status: "running" }), shownRunning, signal),
  );
  const { data: stats, problem, refresh } = pool.value;
  const busy = running.value.data?.items;
  const jobs = waiting.value.data;
  const isIdle = stats?.queue.pending === 0;
  useEffect(() => waiting.value.refresh(), [isIdle]);
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
      <Loading feed={pool.value} />
      {stats && <Agents agents={stats.agents} onChange={refresh} />}
      <h2>Waiting</h2>
      <Loading feed={waiting.value} />
      {jobs && jobs.length > 0 && <WaitingTable jobs={jobs} />}
      {jobs?.length === 0 && <Empty>No job waits.</Empty>}
      {stats && stats.queue.pending > explained && (
        <p>
          The oldest {explained} of {formatCount(stats.queue.pending)}.{" "}
          <a href={addressOf("executions", { status: "queued" })}>All that wait</a>
        </p>
      )}
      <h2>Running</h2>
      <Loading feed={running.value} />
      {busy && busy.length > 0 && <ExecutionTable items={busy} />}
      {running.value.data?.has_more && (
        <p>
          The newest {shownRunning}.{" "}
          <a href={addressOf("executions", { status: "running" })}>All that run</a>
        </p>
      )}
      {busy?.length === 0 && <Empty>No job runs.</Empty>}
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
        {typeof value === "number" ? formatCount(value) : value}
        {of !== undefined && <span class="quiet"> of {formatCount(of)}</span>}
      </strong>
      <span class="quiet">{name}</span>
    </div>
  );
}

function WaitingTable({ jobs }: { jobs: Waiting[] }) {
  return (
    <Table opensRows columns={["Execution", "Job type", "Submitted", number("Waits"), wide("Why")]}>
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
          <td class="wide words">{withLocalTimes(job.reason ?? "")}</td>
        </tr>
      ))}
    </Table>
  );
}
