import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { arch, cpus, loadavg, release, totalmem } from "node:os";
import type Docker from "dockerode";
import manifest from "../../../package.json" with { type: "json" };
import { fillSections } from "../../docs/configuration.ts";
import { OperatorError, parseCommandLine } from "../../operate/command.ts";
import { type Row, summarize, type Summary, type Unit } from "./measure.ts";
import type { World } from "./world.ts";

export function benchHelp(rows: readonly { name: string; what: string }[]): string {
  const list = rows.map(({ name, what }) => `  ${name.padEnd(18)}${what}`).join("\n");
  return `Usage: npm run bench -- [options]

Measures Airlock beside the bare container engine and \`docker run\`, prints a table and keeps the
numbers in bench.json. Sets up what is missing (container engine, images).

Options:
      --only <row>   measure this row; may be repeated
      --quick        few samples: shows that it works, not how fast it is
      --markdown     print the table as Markdown
      --write-docs   also write the table of docs/performance.md from bench.json
  -h, --help

Rows:
${list}
`;
}

/** Reads the arguments of `npm run bench --`. Throws OperatorError on one that it does not know. */
export function parseBenchOptions(args: string[], rows: readonly string[]) {
  const { values } = parseCommandLine("npm run bench", {
    args,
    options: {
      help: { type: "boolean", short: "h", default: false },
      only: { type: "string", multiple: true, default: [] },
      quick: { type: "boolean", default: false },
      markdown: { type: "boolean", default: false },
      "write-docs": { type: "boolean", default: false },
    },
  });
  const { help, only, quick, markdown, "write-docs": writeDocs } = values;
  const unknown = only.find((name) => !rows.includes(name));
  if (unknown !== undefined) {
    throw new OperatorError(`--only ${unknown}: no such row; there are ${rows.join(", ")}`);
  }
  if (quick && writeDocs) {
    throw new OperatorError("--quick measures too little for --write-docs");
  }
  return { help, only, quick, markdown, writeDocs };
}

/** What was measured of a row. */
export type RowResult = {
  readonly name: string;
  readonly what: string;
  readonly goal: string;
  readonly at: string;
  /** Load average of the machine when the bench began. */
  readonly load: number;
  readonly isLoadHigh: boolean;
  readonly quick: boolean;
  readonly series: readonly (Summary & { readonly name: string; readonly unit: Unit })[];
  /** Null where too little was measured. */
  readonly isReached: boolean | null;
};

export type Results = { readonly machine: Machine; readonly rows: readonly RowResult[] };

/** @throws whatever the row throws. */
export async function measureRow(row: Row, world: World, load: Load): Promise<RowResult> {
  const { name, what, goal } = row;
  const at = new Date().toISOString();
  const measured = await row.measure(world);
  const series = measured.map(({ name, unit, samples }) => ({ name, unit, ...summarize(samples) }));
  const find = (wanted: string) => series.find(({ name }) => name.startsWith(wanted));
  const of = (wanted: string): Summary => {
    const found = find(wanted);
    if (!found) throw new Error(`the row ${row.name} measured no ${wanted}`);
    return found;
  };
  const isReached = row.reaches(of, (wanted) => find(wanted) !== undefined);
  return {
    name,
    what,
    goal,
    at,
    load: load.perMinute,
    isLoadHigh: load.isHigh,
    quick: world.quick,
    series,
    // A few samples say nothing of a goal.
    isReached: world.quick ? null : isReached,
  };
}

/** Rows of the same name are replaced, others kept. */
export function mergeResults(
  earlier: Results | null,
  { machine, rows }: Results,
  order: readonly string[],
): Results {
  const kept = (earlier?.rows ?? []).filter(({ name }) => !rows.some((row) => row.name === name));
  const all = [...kept, ...rows].filter(({ name }) => order.includes(name));
  return { machine, rows: all.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name)) };
}

export function readResults(file: string): Results | null {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Results;
  } catch {
    return null;
  }
}

export function writeResults(file: string, results: Results): void {
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
}

const TITLES = ["row", "side", "n", "p50", "p95", "p99", "spread", "p50 to the first", "goal"];

/** A line per side: numbers in the unit of the side, its p50 against that of the row's first side. */
export function tableCells(rows: readonly RowResult[]): string[][] {
  return [TITLES, ...rows.flatMap(rowCells)];
}

function rowCells({ name, goal, series, isReached }: RowResult): string[][] {
  const [first] = series;
  return series.map((side, i) => [
    i === 0 ? name : "",
    side.name,
    String(side.count),
    `${number(side.p50)} ${side.unit}`,
    number(side.p95),
    number(side.p99),
    `± ${number(side.mad)}`,
    i === 0 || side.unit !== first?.unit ? "" : `${number(side.p50 / first.p50)} ×`,
    i === 0 ? `${isReached === null ? "" : isReached ? "reached: " : "MISSED: "}${goal}` : "",
  ]);
}

/** Three digits that count, no exponent. */
function number(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export function markdownTable(cells: readonly string[][]): string {
  const [titles = [], ...lines] = cells;
  return [titles, titles.map(() => "---"), ...lines]
    .map((line) => `| ${line.join(" | ")} |\n`)
    .join("");
}

export const docsFile = "docs/performance.md";

/** Brings the table of docs/performance.md up to date with what was measured. */
export function writeDocs(results: Results): void {
  writeFileSync(docsFile, filledDocs(readFileSync(docsFile, "utf8"), results));
}

/** The page with a table of all rows. */
export function filledDocs(page: string, { machine, rows }: Results): string {
  const [first] = rows;
  const busy = rows.filter(({ isLoadHigh }) => isLoadHigh).map(({ name }) => name);
  const caveat = busy.length > 0 ? ` **The machine was busy** (${busy.join(", ")}).` : "";
  const on = `Measured ${first?.at.slice(0, 10) ?? "never"} on ${Object.values(machine).join("; ")}.`;
  return fillSections(page, {
    results: `${on}${caveat}\n\n${markdownTable(tableCells(rows))}`,
  });
}

type Machine = Awaited<ReturnType<typeof describeMachine>>;

/** Where and on what was measured. */
export async function describeMachine(docker: Docker) {
  const { Version, Components = [] } = (await docker.version()) as EngineVersion;
  const parts = Components.filter(({ Name }) => Name !== "Engine" && Name !== "docker-init");
  return {
    cpu: cpus()[0]?.model.trim() ?? arch(),
    cores: `${cpus().length} cores`,
    memory: `${Math.round(totalmem() / 1024 ** 3)} GiB`,
    kernel: `Linux ${release()}`,
    node: `Node ${process.version}`,
    engine: [`docker ${Version}`, ...parts.map((part) => `${part.Name} ${part.Version}`)].join(
      ", ",
    ),
    airlock: `Airlock ${manifest.version} (${commit()})`,
  };
}

type EngineVersion = { Version: string; Components?: { Name: string; Version: string }[] };

function commit(): string {
  try {
    const args = ["describe", "--always", "--dirty"];
    return execFileSync("git", args, {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return "no commit";
  }
}

/** Above this share of the cores, what else runs distorts what is measured. */
const BUSY_SHARE = 0.35;

type Load = { readonly perMinute: number; readonly isHigh: boolean };

/** How busy the machine is before anything of the bench runs. */
export function loadNow(): Load {
  const [perMinute = 0] = loadavg();
  return { perMinute, isHigh: perMinute > BUSY_SHARE * cpus().length };
}
