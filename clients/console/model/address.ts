import type { Place } from "./output.ts";

/** The views that have their name as address; `executions` and `sessions` also have one address for each. */
const named = [
  "executions",
  "sessions",
  "queue",
  "job-types",
  "dead-letters",
  "webhooks",
  "keys",
  "usage",
  "audit",
  "health",
] as const;
const ofOne = { executions: "execution", sessions: "session" } as const;

/** A view of the console, with an address that can be shared. */
export interface Route {
  view: "playground" | (typeof named)[number] | (typeof ofOne)[keyof typeof ofOne] | "nowhere";
  /** Of the execution or the session. */
  id: string;
  query: URLSearchParams;
}

const base = "/console";

export function routeOf(path: string, search: string): Route {
  const steps = path
    .slice(base.length + 1)
    .split("/")
    .filter(Boolean);
  const [place, id = "", ...more] = steps.map(decode);
  const query = new URLSearchParams(search);
  const view = named.find((name) => name === place);
  if (steps.length === 0) return { view: "playground", id, query };
  if (view !== undefined && steps.length === 1) return { view, id, query };
  const isOfOne = (view === "executions" || view === "sessions") && id !== "" && more.length === 0;
  return { view: isOfOne ? ofOne[view] : "nowhere", id, query };
}

function decode(step: string): string | undefined {
  try {
    return decodeURIComponent(step);
  } catch {
    return undefined;
  }
}

/** Parameters of an address. A list becomes one parameter for each value. */
export type Parameters = Record<string, string | readonly string[] | undefined>;

/** The address of a view; parameters without a value are left out. */
export function addressOf(view: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams();
  for (const [name, values = []] of Object.entries(parameters)) {
    for (const value of [values].flat()) if (value !== "") query.append(name, value);
  }
  const path = view === "" ? base : `${base}/${view}`;
  return query.size === 0 ? path : `${path}?${query}`;
}

/** The line of output that an address such as "…#L12" (stdout) or "…#E12" (stderr) names. */
export function lineOf(hash: string): Place | undefined {
  const [, letter, number] = /^#([LE])([1-9]\d{0,8})$/.exec(hash) ?? [];
  if (number === undefined) return undefined;
  return { stream: letter === "L" ? "stdout" : "stderr", number: Number(number) };
}

export const hashOf = ({ stream, number }: Place): string =>
  `#${stream === "stdout" ? "L" : "E"}${number}`;

export const executionAddress = (id: string): string =>
  addressOf(`executions/${encodeURIComponent(id)}`);

export const sessionAddress = (id: string): string =>
  addressOf(`sessions/${encodeURIComponent(id)}`);
