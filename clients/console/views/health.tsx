import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { Empty, Heading, Loading, Missing, Problem, Status } from "../parts/common.tsx";
import type { ChartSpec } from "../parts/chart.ts";
import { useFeed } from "../service/feed.ts";
import { getHistory, type HistoryPoint } from "../service/operate.ts";
import { getDeadLetterStats, getHealth, type Health } from "../service/records.ts";
import { Figure } from "./queue.tsx";

const minuteMs = 60_000;

/** Whether the service is well, and how the last two days went. */
export function HealthView() {
  const health = useFeed("health view", getHealth);
  const letters = useFeed("dead letter stats of health", getDeadLetterStats);
  const history = useFeed("history", getHistory, undefined, minuteMs);
  const { data } = health.value;
  const points = history.value.data?.points;
  return (
    <>
      <Heading title="Health">{data && <Status status={data.status} />}</Heading>
      <Problem text={health.value.problem ?? history.value.problem} />
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
          <Figure name="container engine" value={data.docker_available ? "answers" : "no answer"} />
          <Figure name="circuit breaker" value={data.circuit_breaker.state.replace("_", " ")} />
          <Figure name="gVisor" value={data.gvisor_available ? "available" : "none"} />
          <Figure
            name={<a href={addressOf("dead-letters")}>dead letters</a>}
            value={letters.value.data?.total ?? "–"}
          />
        </div>
      )}
      {points && points.length > 1 && (
        <>
          <Chart title="Ended executions, each 15 minutes; the last so far" spec={ended(points)} />
          <Chart title="Most at once, each 15 minutes" spec={load(points)} />
        </>
      )}
      {points && points.length <= 1 && (
        <Empty>
          The history of the last 48 hours shows here once the service has run for half an hour.
        </Empty>
      )}
    </>
  );
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

const times = (points: HistoryPoint[]): number[] => points.map(({ at }) => Date.parse(at) / 1000);

function ended(points: HistoryPoint[]): ChartSpec {
  const sum = (names: string[]): number[] =>
    points.map(({ ended }) =>
      Object.entries(ended).reduce(
        (total, [name, n]) => total + (names.includes(name) ? (n ?? 0) : 0),
        0,
      ),
    );
  return {
    times: times(points),
    lines: [
      { name: "succeeded", colour: "--succeeded", values: sum(["succeeded"]) },
      {
        name: "failed, timeout or oom",
        colour: "--failed",
        values: sum(["failed", "timeout", "oom"]),
      },
      { name: "cancelled", colour: "--cancelled", values: sum(["cancelled"]) },
    ],
  };
}

function load(points: HistoryPoint[]): ChartSpec {
  return {
    times: times(points),
    lines: [
      { name: "waiting", colour: "--timeout", values: points.map(({ pending }) => pending) },
      { name: "running", colour: "--running", values: points.map(({ running }) => running) },
      {
        name: "slots",
        colour: "--cancelled",
        values: points.map(({ max_workers }) => max_workers),
      },
    ],
  };
}

/** A picture of some lines over time, and the same as words. */
function Chart({ title, spec }: { title: string; spec: ChartSpec }) {
  const host = useRef<HTMLDivElement>(null);
  const isMissing = useSignal(false);
  useEffect(() => {
    let close: (() => void) | undefined;
    let isClosed = false;
    import("../parts/chart.ts").then(
      ({ drawChart }) => {
        if (!isClosed && host.current) close = drawChart(host.current, spec);
      },
      () => (isMissing.value = true),
    );
    return () => {
      isClosed = true;
      close?.();
    };
  }, [JSON.stringify(spec)]);
  const words = spec.lines
    .map(({ name, values }) => `${name}: at most ${Math.max(...values)}`)
    .join("; ");
  return (
    <figure>
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      {isMissing.value && <Missing part="chart" />}
      <div class="chart" ref={host} role="img" aria-label={`${title}. ${words}.`} />
    </figure>
  );
}
