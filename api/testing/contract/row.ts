import type { Api } from "./api.ts";
import type { ServerName } from "./servers.ts";

/** One rule of the contract, and how to see that a service keeps it. */
export interface Row {
  rule: string;
  /** The configuration that it needs; "open" where it says nothing. */
  server?: ServerName;
  /** The one platform that it is a rule of, and why; of both where it says nothing. */
  only?: { on: "node" | "workerd"; why: string };
  /** Why it shows on workerd alone, without what wrangler puts in front of it. */
  hiddenByWrangler?: string;
  check: (api: Api) => Promise<void>;
}

/** A rule for each of several cases, named by what differs. */
export function each<T>(
  cases: readonly T[],
  rule: (one: T) => string,
  check: (api: Api, one: T) => Promise<void>,
): Row[] {
  return cases.map((one) => ({ rule: rule(one), check: (api) => check(api, one) }));
}
