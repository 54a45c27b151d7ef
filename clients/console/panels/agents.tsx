import { useSignal } from "@preact/signals";
import { formatTime } from "../model/time.ts";
import { drain, invite, type PoolAgent, resume } from "../service/operate.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Age, Dialog, Empty, Status } from "../parts/common.tsx";
import { actions, number, Table } from "../parts/table.tsx";
import { copy } from "../parts/copy.ts";
import { ScopedButton } from "../parts/scoped-button.tsx";
import { lacksScope } from "../service/own-key.ts";

interface Props {
  agents: PoolAgent[];
  onChange: () => void;
}

/** Every agent that has not left: what it can do, what it does, what keeps it from work. */
export function Agents({ agents, onChange }: Props) {
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
export function AddAgent() {
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
