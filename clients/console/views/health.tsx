import { addressOf } from "../model/address.ts";
import { Empty, Heading, Loading, Problem, Status } from "../parts/common.tsx";
import { Chart } from "../parts/chart.tsx";
import { useFeed } from "../service/feed.ts";
import { hasScope } from "../service/own-key.ts";
import { getHistory, type HistoryPoint, historyStepMinutes } from "../service/operate.ts";
import { getDeadLetterStats, getHealth, type Health } from "../service/records.ts";
import { Figure } from "./queue.tsx";

const minuteMs = 60_000;

/** Whether the service is well, and how the last two days went. */
export function HealthView() {
  const health = useFeed("health view", getHealth);
  const letters = useFeed("dead letter stats of health", getDeadLetterStats);
  const { data } = health.value;
  return (
    <>
      <Heading title="Health">{data && <Status status={data.status} />}</Heading>
      <Problem text={health.value.problem} />
      <Loading feed={health.value} />
      {data?.status === "degraded" && (
        <p class="problem">
          {whyDegraded(data)} <a href={addressOf("queue")}>To the agents</a>
        </p>
      )}
      {data && (
        <div class="columns">
          <Figure
            name="waiting"
            value={data.queue_stats.pending}
            of={data.queue_stats.max_queue_size}
          />
          <Figure
            name="running"
            value={data.queue_stats.running}
            of={data.queue_stats.max_workers}
          />
          <Figure name="container engine" value={engineOf(data)} />
          <Figure name="circuit breaker" value={data.circuit_breaker.state.replace("_", " ")} />
          <Figure name="gVisor" value={data.gvisor_available ? "available" : "none"} />
          <Figure
            name={<a href={addressOf("dead-letters")}>dead letters</a>}
            value={letters.value.data?.total ?? "–"}
          />
        </div>
      )}
      {hasScope("monitor") && <History />}
    </>
  );
}

function History() {
  const history = useFeed("history", getHistory, undefined, minuteMs);
  const points = history.value.data?.points;
  return (
    <>
      <Problem text={history.value.problem} />
      {points && points.length > 1 && <Charts points={points} />}
      {points && points.length <= 1 && (
        <Empty>
          The history of the last 48 hours shows here once the service has run for half an hour.
        </Empty>
      )}
    </>
  );
}

function engineOf({ docker_available, queue_stats }: Health): string {
  if (docker_available) return "answers";
  return queue_stats.max_workers > 0 ? "no answer" : "no agent";
}

function whyDegraded({ circuit_breaker, docker_available, queue_stats }: Health): string {
  if (circuit_breaker.state === "open") {
    return "The container engine keeps failing, so the circuit breaker is open: new jobs are refused until it works again.";
  }
  if (!docker_available && queue_stats.max_workers > 0) {
    return "No agent reaches a container engine: jobs wait until one does.";
  }
  return "No agent is connected: jobs wait until one is.";
}

/** How many ended with one of some statuses. */
const sum = (points: HistoryPoint[], names: (keyof HistoryPoint["ended"])[]): number[] =>
  points.map(({ ended }) => names.reduce((total, name) => total + (ended[name] ?? 0), 0));

function Charts({ points }: { points: HistoryPoint[] }) {
  const ends = points.map(({ at }) => Date.parse(at));
  const stepMs = historyStepMinutes * minuteMs;
  return (
    <>
      <Chart
        title={`Ended executions, in each ${historyStepMinutes} minutes; the last so far`}
        ends={ends}
        stepMs={stepMs}
        lines={[
          { name: "succeeded", colour: "succeeded", values: sum(points, ["succeeded"]) },
          {
            name: "failed, timeout or oom",
            colour: "failed",
            values: sum(points, ["failed", "timeout", "oom"]),
          },
          { name: "cancelled", colour: "cancelled", values: sum(points, ["cancelled"]) },
        ]}
      />
      <Chart
        title={`Load, counted once a minute; the most in each ${historyStepMinutes} minutes`}
        ends={ends}
        stepMs={stepMs}
        lines={[
          { name: "waiting", colour: "timeout", values: points.map(({ pending }) => pending) },
          { name: "running", colour: "running", values: points.map(({ running }) => running) },
          {
            name: "slots",
            colour: "cancelled",
            values: points.map(({ max_workers }) => max_workers),
          },
        ]}
      />
    </>
  );
}
