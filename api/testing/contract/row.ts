import type { Api } from "./api.ts";
import type { ServerName } from "./servers.ts";

/** One rule of the contract, and its check. */
export interface Row extends Where {
  rule: string;
  /** For a row that is one of several cases: what their rules have in common, with "…" for the rest. */
  family?: string;
  check: (api: Api) => Promise<void>;
}

/** What a row needs. */
interface Where {
  /** The configuration that it needs; default "open". */
  server?: ServerName;
  /** The only platform that it applies to, and why; default: both. */
  only?: { on: "node" | "workerd"; why: string };
  /** Why it can be checked only on workerd alone, without wrangler's proxy. */
  hiddenByWrangler?: string;
}

/** A rule for each of several cases, named by the difference. */
export function each<T>(
  cases: readonly T[],
  rule: (one: T) => string,
  check: (api: Api, one: T) => Promise<void>,
  where: Where = {},
): Row[] {
  const family = commonTitle(cases.map(rule));
  return cases.map((one) => ({
    ...where,
    rule: rule(one),
    family,
    check: (api) => check(api, one),
  }));
}

/** The start and the end that all titles share, with "…" between them. */
function commonTitle(titles: readonly string[]): string {
  const start = commonStart(titles);
  const ends = titles.map((title) => reversed(title.slice(start.length)));
  return titles.length === 1 ? start : `${start}…${reversed(commonStart(ends))}`;
}

function commonStart([first = "", ...rest]: readonly string[]): string {
  let { length } = first;
  for (const title of rest) while (!title.startsWith(first.slice(0, length))) length--;
  return first.slice(0, length);
}

const reversed = (text: string): string => Array.from(text).toReversed().join("");
