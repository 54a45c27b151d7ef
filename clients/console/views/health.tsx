import { useSignal } from "@preact/signals";
import type { Health, PoolHistory } from "../../typescript/src/generated.ts";
import { addressOf } from "../model/address.ts";
import { formatCount, formatTime, hoursIn, pathOf, roundUp } from "../model/numbers.ts";
import { Empty, Heading, Loading, Problem, Status } from "../parts/elements.tsx";
import { api, hasScope } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { Figure } from "./queue.tsx";

const minuteMs = 60_000;
/** The time that a point of the history covers. */
const historyStepMinutes = 15;
type HistoryPoint = PoolHistory["points"][number];

/** Whether the service is well, and how the last two days went. */
export function HealthView() {
  const health = useFeed("health view", api.getHealth);
  const letters = useFeed("dead letter stats of health", api.getDeadLetterStats);
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
  const history = useFeed(
    "history",
    (options) => api.getPoolHistory({ hours: 48, step: historyStepMinutes }, options),
    minuteMs,
  );
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

interface ChartProps {
  title: string;
  /** The ends of intervals of equal length, in ms since 1970. Intervals without a record are left out. */
  ends: number[];
  stepMs: number;
  /** Each line has a colour by its class, and a value for each interval. */
  lines: { name: string; colour: string; values: number[] }[];
}

/** "2026-11-23 14:05". */
const minuteOf = (ms: number): string => formatTime(new Date(ms).toISOString()).slice(0, -3);
const timeOf = (ms: number): string => minuteOf(ms).slice(-5);
/** The time of day, and the date at midnight. */
const tickOf = (ms: number): string =>
  timeOf(ms) === "00:00" ? minuteOf(ms).slice(5, 10) : timeOf(ms);

/** A picture of lines over time, the same in words, and the values of one interval. */
function Chart({ title, ends, stepMs, lines }: ChartProps) {
  const pointed = useSignal<number | undefined>(undefined);
  const start = ends[0]! - stepMs;
  const span = ends.at(-1)! - start;
  const most = roundUp(Math.max(...lines.flatMap(({ values }) => values)));
  const shown = pointed.value ?? ends.length - 1;
  const end = ends[shown] ?? ends.at(-1)!;
  const percent = (ms: number): string => `${((ms - start) / span) * 100}%`;
  const point = (event: PointerEvent): void => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    const at = start + ((event.clientX - left) / width) * span;
    const found = ends.findIndex((to) => at <= to && at > to - stepMs);
    pointed.value = found === -1 ? undefined : found;
  };
  const words = lines.map(({ name, values }) => `${name}: at most ${Math.max(...values)}`);
  return (
    <figure>
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      <div class="chart" onPointerMove={point} onPointerLeave={() => (pointed.value = undefined)}>
        <svg
          viewBox={`0 0 ${span} 100`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}. ${words.join("; ")}.`}
        >
          {pointed.value !== undefined && (
            <rect x={end - stepMs - start} width={stepMs} height="100" />
          )}
          <path d={[0, 50, 100].map((y) => `M0 ${y}H${span}`).join("")} />
          {lines.map(({ name, colour, values }) => (
            <path
              key={name}
              class={colour}
              d={pathOf(
                ends.map((to, i) => ({ from: to - stepMs, to, value: values[i] ?? 0 })),
                start,
                most,
              )}
            />
          ))}
        </svg>
        <span class="most">{formatCount(most)}</span>
        {hoursIn(start, start + span).map((hour) => (
          <span key={hour} class="hour" style={{ left: percent(hour) }}>
            {tickOf(hour)}
          </span>
        ))}
      </div>
      <p class="legend">
        <span>
          {minuteOf(end - stepMs)} to {timeOf(end)}
        </span>
        {lines.map(({ name, colour, values }) => (
          <span key={name} class={colour}>
            {name} <strong>{formatCount(values[shown] ?? 0)}</strong>
          </span>
        ))}
      </p>
    </figure>
  );
}
