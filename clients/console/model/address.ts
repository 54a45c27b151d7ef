import type { Place } from "./output.ts";

/** The views of the console. Each has an address that can be shared. */
export type Route =
  | { view: "playground"; query: URLSearchParams }
  | { view: "executions"; query: URLSearchParams }
  | { view: "execution" | "session"; id: string; query: URLSearchParams }
  | { view: (typeof plain)[number]; query: URLSearchParams }
  | { view: "nowhere"; query: URLSearchParams };

const base = "/console";

export function routeOf(path: string, search: string): Route {
  const query = new URLSearchParams(search);
  const [view = "", id, ...more] = path
    .slice(base.length + 1)
    .split("/")
    .filter(Boolean);
  if (view === "") return { view: "playground", query };
  const one = view === "executions" ? "execution" : view === "sessions" ? "session" : undefined;
  if (one !== undefined && id !== undefined && more.length === 0) {
    const decoded = decode(id);
    if (decoded !== undefined) return { view: one, id: decoded, query };
  }
  if (id === undefined) {
    if (view === "executions") return { view, query };
    if (isPlain(view)) return { view, query };
  }
  return { view: "nowhere", query };
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

const plain = [
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
const isPlain = (view: string): view is (typeof plain)[number] =>
  (plain as readonly string[]).includes(view);

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
