import UPlot from "uplot";
import { formatCount, formatTime } from "../model/time.ts";

export interface ChartSpec {
  /** Seconds since 1970. */
  times: number[];
  lines: { name: string; colour: string; values: number[] }[];
}

const height = 200;

/** "2026-11-23 14:05". */
const minuteOf = (seconds: number): string =>
  formatTime(new Date(seconds * 1000).toISOString()).slice(0, -3);

/** The time of day, and the date at midnight. */
function tickOf(seconds: number): string {
  const [day = "", time = ""] = minuteOf(seconds).split(" ");
  return time === "00:00" ? day : time;
}

const sizeOf = (text: string): number => text.length;

/** Draws lines into an element, as wide as that is; returns what removes them. */
export function drawChart(host: HTMLElement, { times, lines }: ChartSpec): () => void {
  const style = getComputedStyle(host);
  // A custom property is text; a colour that uses it is computed.
  const probe = document.createElement("span");
  host.append(probe);
  const colour = (name: string): string => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const axis = {
    stroke: colour("--quiet"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: `12px ${style.fontFamily}`,
  };
  const chart = new UPlot(
    {
      width: host.clientWidth,
      height,
      axes: [
        { ...axis, values: (_, at) => at.map(tickOf) },
        { ...axis, size: (_, values) => 16 + 8 * Math.max(3, ...(values ?? []).map(sizeOf)) },
      ],
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
      // Where nothing is pointed at, the legend has the newest values.
      hooks: {
        setLegend: [
          (chart) => {
            if (chart.legend.idx == null) chart.setLegend({ idx: times.length - 1 }, false);
          },
        ],
      },
      series: [
        { label: "Time", value: (_, at) => (at === null ? "" : minuteOf(at)) },
        ...lines.map(({ name, colour: own }) => ({
          label: name,
          stroke: colour(own),
          value: (_: UPlot, n: number | null) => (n === null ? "" : formatCount(n)),
          width: 1.5,
          points: { show: false },
        })),
      ],
    },
    [times, ...lines.map(({ values }) => values)],
    host,
  );
  probe.remove();
  const observer = new ResizeObserver(() => chart.setSize({ width: host.clientWidth, height }));
  observer.observe(host);
  return () => {
    observer.disconnect();
    chart.destroy();
  };
}
