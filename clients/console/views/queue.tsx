import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { timesOf } from "../model/phases.ts";
import { formatCount, formatDuration, withLocalTimes } from "../model/time.ts";
import { AddAgent, Agents } from "../panels/agents.tsx";
import { Empty, ExecutionLink, Heading, Loading, Problem } from "../parts/common.tsx";
import { number, Table, wide } from "../parts/table.tsx";
import { Hosts } from "../panels/hosts.tsx";
import { ExecutionTable } from "./executions.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { getJob, getPool, type Listed, listExecutions } from "../service/records.ts";

/** So many of the oldest waiting jobs are grouped. */
const lookedAt = 100;
/** So many groups get a reason: it takes one request each, within the rate limit of the service. */
const explained = 8;
const explainedMs = 20_000;
const shownRunning = 20;

/** Waiting jobs of one job type that wait for the same. */
interface Group {
  oldest: Listed;
  count: number;
  /** Why the oldest waits. */
  reason: string | undefined;
}

/** The oldest waiting jobs, grouped by what they wait for. */
async function loadWaiting(pending: number, signal: AbortSignal): Promise<Group[]> {
  const offset = String(Math.max(0, pending - lookedAt));
  const query = new URLSearchParams({ status: "queued", offset });
  // Some more, as others may have come meanwhile.
  const { items } = await listExecutions(query, 2 * lookedAt, signal);
  const groups = Object.values(
    Object.groupBy(items.toReversed().slice(0, lookedAt), ({ job_type, run_at }) =>
      JSON.stringify([job_type, run_at !== undefined]),
    ),
  );
  return Promise.all(
    groups.slice(0, explained).map(async (jobs) => {
      const [oldest] = jobs as [Listed];
      const { message } = await getJob(oldest.execution_id, signal);
      return { oldest, count: jobs!.length, reason: message };
    }),
  );
}

/** Agents and their work; waiting jobs and the reason of each. */
export function Queue() {
  const pool = useFeed("pool", getPool);
  const waiting = useFeed(
    "waiting",
    async (signal) => loadWaiting((await getPool(signal)).queue.pending, signal),
    undefined,
    explainedMs,
  );
  const running = useFeed("running", (signal) =>
    listExecutions(new URLSearchParams({ status: "running" }), shownRunning, signal),
  );
  const { data: stats, problem, refresh } = pool.value;
  const busy = running.value.data?.items;
  const groups = waiting.value.data;
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
      {groups && groups.length > 0 && <WaitingTable groups={groups} />}
      {groups?.length === 0 && <Empty>No job waits.</Empty>}
      {stats && stats.queue.pending > 1 && (
        <p>
          {stats.queue.pending > lookedAt &&
            `The oldest ${lookedAt} of ${formatCount(stats.queue.pending)}. `}
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
  of?: number | string | undefined;
}

export function Figure({ name, value, of }: FigureProps) {
  return (
    <div class="figure">
      <strong>
        {typeof value === "number" ? formatCount(value) : value}
        {of !== undefined && (
          <span class="quiet"> of {typeof of === "number" ? formatCount(of) : of}</span>
        )}
      </strong>
      <span class="quiet">{name}</span>
    </div>
  );
}

function WaitingTable({ groups }: { groups: Group[] }) {
  return (
    <Table
      opensRows
      columns={[
        "Job type",
        number("Jobs"),
        "Oldest",
        number("Waits"),
        wide("Why the oldest waits"),
      ]}
    >
      {groups.map(({ oldest, count, reason }) => (
        <tr key={oldest.execution_id}>
          <td class="strong">{oldest.job_type}</td>
          <td class="number" data-name="jobs">
            {count}
          </td>
          <td data-name="oldest">
            <ExecutionLink id={oldest.execution_id} />
          </td>
          <td class="number" data-name="waits">
            {formatDuration(timesOf(oldest, clock.value).waited)}
          </td>
          <td class="wide words">{withLocalTimes(reason ?? "")}</td>
        </tr>
      ))}
    </Table>
  );
}
