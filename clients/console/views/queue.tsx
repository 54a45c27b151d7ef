import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { JoinedHost, PoolAgent } from "../../typescript/src/generated.ts";
import { addressOf } from "../model/address.ts";
import { formatCount, formatDuration, formatTime, withLocalTimes } from "../model/numbers.ts";
import { timesOf } from "../model/record.ts";
import {
  announce,
  confirm,
  Empty,
  ExecutionLink,
  Heading,
  Labels,
  Loading,
  openDialog,
  Problem,
  ScopedButton,
  SecretDialog,
  Status,
} from "../parts/elements.tsx";
import {
  actions,
  age,
  type Column,
  digits,
  named,
  number,
  plain,
  Table,
  wide,
} from "../parts/table.tsx";
import { api, clock, hasScope, lacksScope } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { executions, type Listed, loadPage } from "../service/records.ts";
import { executionColumns } from "./executions.tsx";

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
async function loadWaiting(signal: AbortSignal): Promise<Group[]> {
  const { queue } = await api.getPoolStats({ signal });
  const offset = String(Math.max(0, queue.pending - lookedAt));
  const query = new URLSearchParams({ status: "queued", offset });
  // Some more, as others may have come meanwhile.
  const { items } = await loadPage(executions, query, signal, 2 * lookedAt);
  const groups = Object.values(
    Object.groupBy(items.toReversed().slice(0, lookedAt), ({ job_type, run_at }) =>
      JSON.stringify([job_type, run_at !== undefined]),
    ),
  );
  return Promise.all(
    groups.slice(0, explained).map(async (jobs) => {
      const [oldest] = jobs as [Listed];
      const { message } = await api.getJob({ id: oldest.execution_id }, { signal });
      return { oldest, count: jobs!.length, reason: message };
    }),
  );
}

/** Agents and their work; waiting jobs and the reason of each. */
export function Queue() {
  const pool = useFeed("pool", api.getPoolStats);
  const waiting = useFeed("waiting", ({ signal }) => loadWaiting(signal), explainedMs);
  const running = useFeed("running", ({ signal }) =>
    loadPage(executions, new URLSearchParams({ status: "running" }), signal, shownRunning),
  );
  const { data: stats, problem, refresh } = pool.value;
  const busy = running.value.data?.items;
  const groups = waiting.value.data;
  const isIdle = stats?.queue.pending === 0;
  useEffect(() => waiting.value.refresh(), [isIdle]);
  return (
    <>
      <Heading title="Queue and agents">
        <ScopedButton scope="agents" work={invite}>
          Add an agent
        </ScopedButton>
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
      {groups && groups.length > 0 && (
        <Table
          opensRows
          columns={waitingColumns}
          items={groups}
          idOf={({ oldest }) => oldest.execution_id}
        />
      )}
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
      {busy && busy.length > 0 && (
        <Table columns={executionColumns()} items={busy} idOf={executions.idOf} opensRows />
      )}
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

const waitingColumns: Column<Group>[] = [
  plain("Job type", ({ oldest }) => oldest.job_type, { class: "strong" }),
  number("Jobs", ({ count }) => count),
  named("Oldest", ({ oldest }) => <ExecutionLink id={oldest.execution_id} />),
  number("Waits", ({ oldest }) => formatDuration(timesOf(oldest, clock.value).waited)),
  wide("Why the oldest waits", ({ reason }) => withLocalTimes(reason ?? ""), { class: "words" }),
];

interface AgentsProps {
  agents: PoolAgent[];
  onChange: () => void;
}

/** Every agent that has not left: what it can do, what it does, what keeps it from work. */
function Agents({ agents, onChange }: AgentsProps) {
  if (lacksScope("monitor")) {
    return <Empty>To see the agents, use an API key that has the scope monitor.</Empty>;
  }
  if (agents.length === 0) {
    return (
      <Empty>
        No agent is connected: jobs wait until one is. “Add an agent” gives the command.
      </Empty>
    );
  }
  return <Table columns={agentColumns} items={agents} idOf={({ id }) => id} refresh={onChange} />;
}

async function drainOrResume({ id, name, state }: PoolAgent, refresh: () => void): Promise<void> {
  const isDraining = state === "draining";
  await (isDraining ? api.resumeAgent({ id }) : api.drainAgent({ id }));
  announce(isDraining ? `${name} takes jobs again` : `${name} takes no new jobs`);
  refresh();
}

const agentColumns: Column<PoolAgent>[] = [
  // The service calls an agent idle until it has no slot left.
  plain("State", ({ state, running }) => (
    <Status status={state === "idle" && running > 0 ? "working" : state} />
  )),
  plain(
    "Agent",
    ({ name, labels, problem, state, engine }) => (
      <>
        <span class="strong">{name}</span> <Labels of={labels} />
        {problem && (
          <span class={state === "draining" ? "agent-note" : "agent-problem"}>{problem}</span>
        )}
        {(engine.missing_images ?? []).map(({ image, reason }) => (
          <span key={image} class="agent-problem">
            {image} is missing: {reason}
          </span>
        ))}
      </>
    ),
    { class: "words" },
  ),
  number("Slots", ({ running, slots }) => `${running} of ${slots}`),
  number("Warm", ({ warm }) => warm),
  digits("GPUs", ({ gpus }) => (gpus.total === 0 ? "–" : `${gpus.free} of ${gpus.total} free`)),
  named("Jobs run as", ({ engine }) => (engine.fork_problem === null ? "forks" : "containers"), {
    hint: ({ engine }) => engine.fork_problem ?? undefined,
  }),
  named("Engine", ({ engine }) => (
    <>
      {engine.available ? (engine.version ?? "answers") : <Status status="unwell" />}{" "}
      <span class="quiet">
        {engine.runtimes.filter((runtime) => !runtime.startsWith("io.")).join(", ")}
      </span>
    </>
  )),
  named("Breaker", ({ breaker }) => <Status status={breaker.state} />),
  age("Seen", ({ last_seen }) => last_seen, { isNamed: true }),
  actions((agent, refresh) => {
    const action = agent.state === "draining" ? "Resume" : "Drain";
    return (
      <ScopedButton
        scope="agents"
        class="small"
        aria-label={`${action} ${agent.name}`}
        work={() => drainOrResume(agent, refresh)}
      >
        {action}
      </ScopedButton>
    );
  }),
];

const isHere = /^(localhost|127\..*|\[::1\])$/.test(location.hostname);

/** Makes a code with which one more host can join, and shows the command for it. */
async function invite(): Promise<void> {
  const { code, expires_at } = await api.inviteHost({ invitationRequest: {} });
  const command = `npm run agent -- join --url ${location.origin} --code ${code}`;
  const lead = (
    <p>Run this in a checkout of Airlock on the new host. It needs a container engine there.</p>
  );
  openDialog(
    <SecretDialog title="Add an agent" label="The command" secret={command} lead={lead}>
      {isHere && (
        <p>
          {location.hostname} is this machine: put an address of the service that the new host
          reaches in its place.
        </p>
      )}
      <p class="quiet">
        The code works once, until {formatTime(expires_at)}. It is not shown again.
      </p>
    </SecretDialog>,
  );
}

const quietMs = 30_000;

/** Hosts that have joined with a code: each has a token of its own, which can be revoked. */
function Hosts() {
  if (lacksScope("agents")) {
    return <Empty>To see the hosts, use an API key that has the scope agents.</Empty>;
  }
  return hasScope("agents") ? <HostTable /> : null;
}

function HostTable() {
  const feed = useFeed("hosts", api.listHosts, quietMs);
  const { data: { hosts } = {}, problem, refresh } = feed.value;
  return (
    <>
      <Problem text={problem} />
      {hosts?.length === 0 && (
        <Empty>
          No host has joined with a code. Agents with a configured token are not shown here.
        </Empty>
      )}
      {hosts && hosts.length > 0 && (
        <Table columns={hostColumns} items={hosts} idOf={({ id }) => id} refresh={refresh} />
      )}
    </>
  );
}

const hostColumns: Column<JoinedHost>[] = [
  plain("Token", ({ revoked_at }) => <Status status={revoked_at === null ? "valid" : "revoked"} />),
  plain("Host", ({ name }) => name, { class: "strong" }),
  digits("Agents", ({ agents }) => agents.length),
  age("Joined", ({ joined_at }) => joined_at, { isNamed: true }),
  age("Last used", ({ last_used_at }) => last_used_at, { isNamed: true, never: "never" }),
  actions(({ id, name, revoked_at }, refresh) => {
    const revoke = async (): Promise<void> => {
      await api.revokeHost({ id });
      announce(`${name} is revoked`);
      refresh();
    };
    const text =
      "Its agents get no more work, and their jobs go to other agents. To return, it must join again.";
    return (
      revoked_at === null && (
        <button
          class="small danger"
          aria-label={`Revoke ${name}`}
          onClick={() => confirm({ title: `Revoke ${name}`, action: "Revoke", text, work: revoke })}
        >
          Revoke
        </button>
      )
    );
  }),
];
