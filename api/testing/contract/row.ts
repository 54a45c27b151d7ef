import type { Api } from "./api.ts";
import type { ServerName } from "./servers.ts";

/** One rule of the contract, and its check. */
export interface Row extends Where {
  rule: string;
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
  return cases.map((one) => ({
    ...where,
    rule: rule(one),
    check: (api) => check(api, one),
  }));
}

/** Rows that need this configuration, but for those that name another one. */
export function on(server: ServerName, rows: Row[]): Row[] {
  return rows.map((row) => ({ server, ...row }));
}
