import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { formatCount, formatDuration, formatTime, withLocalTimes } from "../model/numbers.ts";
import { timesOf } from "../model/record.ts";
import {
  Age,
  announce,
  attempt,
  Confirm,
  copy,
  Dialog,
  Empty,
  ExecutionLink,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  Status,
} from "../parts/elements.tsx";
import { actions, number, Table, wide } from "../parts/table.tsx";
import { clock, hasScope, lacksScope } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import {
  drain,
  getJob,
  getPool,
  invite,
  type JoinedHost,
  type Listed,
  listExecutions,
  listHosts,
  type PoolAgent,
  resume,
  revoke,
} from "../service/records.ts";
import { ExecutionTable } from "./executions.tsx";

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
  return (
    <Table
      columns={[
        "State",
        "Agent",
        number("Slots"),
        number("Warm"),
        "GPUs",
        "Jobs run as",
        "Engine",
        "Breaker",
        "Seen",
        actions,
      ]}
    >
      {agents.map((agent) => (
        <AgentRow key={agent.id} agent={agent} onChange={onChange} />
      ))}
    </Table>
  );
}

function AgentRow({ agent, onChange }: { agent: PoolAgent; onChange: () => void }) {
  const { id, name, state, engine, gpus, breaker, labels } = agent;
  const isDraining = state === "draining";
  const change = async (): Promise<void> => {
    await (isDraining ? resume(id) : drain(id));
    announce(isDraining ? `${name} takes jobs again` : `${name} takes no new jobs`);
    onChange();
  };
  return (
    <tr>
      <td>
        {/* The service calls an agent idle until it has no slot left. */}
        <Status status={state === "idle" && agent.running > 0 ? "working" : state} />
      </td>
      <td class="words">
        <span class="strong">{name}</span>{" "}
        {Object.entries(labels).map(([key, value]) => (
          <span key={key} class="label" title={`${key}: ${value}`}>
            {key}: {value}
          </span>
        ))}
        {agent.problem && (
          <span class={isDraining ? "agent-note" : "agent-problem"}>{agent.problem}</span>
        )}
        {(engine.missing_images ?? []).map(({ image, reason }) => (
          <span key={image} class="agent-problem">
            {image} is missing: {reason}
          </span>
        ))}
      </td>
      <td class="number" data-name="slots">
        {agent.running} of {agent.slots}
      </td>
      <td class="number" data-name="warm">
        {agent.warm}
      </td>
      <td class="number-left" data-name="GPUs">
        {gpus.total === 0 ? "–" : `${gpus.free} of ${gpus.total} free`}
      </td>
      <td data-name="jobs run as" title={engine.fork_problem ?? undefined}>
        {engine.fork_problem === null ? "forks" : "containers"}
      </td>
      <td data-name="engine">
        {engine.available ? (engine.version ?? "answers") : <Status status="unwell" />}{" "}
        <span class="quiet">
          {engine.runtimes.filter((runtime) => !runtime.startsWith("io.")).join(", ")}
        </span>
      </td>
      <td data-name="breaker">
        <Status status={breaker.state} />
      </td>
      <td class="quiet number-left" data-name="seen">
        <Age at={agent.last_seen} />
      </td>
      <td class="row-actions">
        <ScopedButton
          scope="agents"
          class="small"
          aria-label={`${isDraining ? "Resume" : "Drain"} ${name}`}
          onClick={() => void attempt(change)}
        >
          {isDraining ? "Resume" : "Drain"}
        </ScopedButton>
      </td>
    </tr>
  );
}

const isHere = /^(localhost|127\..*|\[::1\])$/.test(location.hostname);

/** Makes a code with which one more host can join, and shows the command for it. */
function AddAgent() {
  const made = useSignal<{ command: string; until: string } | undefined>(undefined);
  const make = async (): Promise<void> => {
    const { code, expires_at } = await invite();
    const command = `npm run agent -- join --url ${location.origin} --code ${code}`;
    made.value = { command, until: expires_at };
  };
  return (
    <>
      <ScopedButton scope="agents" onClick={() => void attempt(make)}>
        Add an agent
      </ScopedButton>
      {made.value && (
        <Dialog label="Add an agent" onClose={() => (made.value = undefined)}>
          <form method="dialog">
            <h2>Add an agent</h2>
            <p>
              Run this in a checkout of Airlock on the new host. It needs a container engine there.
            </p>
            <pre class="json wrapped" tabIndex={0}>
              {made.value.command}
            </pre>
            {isHere && (
              <p>
                {location.hostname} is this machine: put an address of the service that the new host
                reaches in its place.
              </p>
            )}
            <p class="quiet">
              The code works once, until {formatTime(made.value.until)}. It is not shown again.
            </p>
            <p class="actions">
              <button type="button" onClick={() => void copy(made.value?.command ?? "")}>
                Copy
              </button>
              <button class="primary">Done</button>
            </p>
          </form>
        </Dialog>
      )}
    </>
  );
}

const quietMs = 30_000;

const loadHosts = async (signal: AbortSignal): Promise<JoinedHost[]> =>
  (await listHosts(signal)).hosts;

/** Hosts that have joined with a code: each has a token of its own, which can be revoked. */
function Hosts() {
  if (lacksScope("agents")) {
    return <Empty>To see the hosts, use an API key that has the scope agents.</Empty>;
  }
  return hasScope("agents") ? <HostTable /> : null;
}

function HostTable() {
  const feed = useFeed("hosts", loadHosts, undefined, quietMs);
  const { data, problem, refresh } = feed.value;
  const asked = useSignal<JoinedHost | undefined>(undefined);
  const end = async ({ id, name }: JoinedHost): Promise<void> => {
    await revoke(id);
    announce(`${name} is revoked`);
    refresh();
  };
  const host = asked.value;
  return (
    <>
      <Problem text={problem} />
      {host && (
        <Confirm
          title={`Revoke ${host.name}`}
          action="Revoke"
          onConfirm={() => void attempt(() => end(host))}
          onClose={() => (asked.value = undefined)}
        >
          Its agents get no more work, and their jobs go to other agents. To return, it must join
          again.
        </Confirm>
      )}
      {data?.length === 0 && (
        <Empty>
          No host has joined with a code. Agents with a configured token are not shown here.
        </Empty>
      )}
      {data && data.length > 0 && (
        <Table columns={["Token", "Host", "Agents", "Joined", "Last used", actions]}>
          {data.map((one) => (
            <tr key={one.id}>
              <td>
                <Status status={one.revoked_at === null ? "valid" : "revoked"} />
              </td>
              <td class="strong">{one.name}</td>
              <td class="number-left" data-name="agents">
                {one.agents.length}
              </td>
              <td class="quiet number-left" data-name="joined">
                <Age at={one.joined_at} />
              </td>
              <td class="quiet number-left" data-name="last used">
                {one.last_used_at ? <Age at={one.last_used_at} /> : "never"}
              </td>
              <td class="row-actions">
                {one.revoked_at === null && (
                  <button
                    class="small danger"
                    aria-label={`Revoke ${one.name}`}
                    onClick={() => (asked.value = one)}
                  >
                    Revoke
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
