/** When an event was noted, milliseconds of the machine's monotonic clock. */
export type Event = readonly [atMs: number, name: string];

/** The steps of one warm run, each up to the event that ends it. */
export const steps: readonly { readonly name: string; readonly until: string }[] = [
  { name: "request to the API", until: "api receives execute" },
  { name: "API: check, store, claim, answer the agent's poll", until: "agent hears of poll" },
  { name: "agent: read the job, take a warm container", until: "agent acquired" },
  { name: "engine: job into the container, code begins", until: "agent started" },
  { name: "container: the code runs and ends, its end comes back", until: "agent ended" },
  { name: "agent: judge, post the result", until: "api receives result" },
  { name: "API: store the result, wake the request, answer", until: "client has the answer" },
];

/**
 * Milliseconds that each step of one run took, in the order of `steps`; null where the events do not
 * follow one another as they should.
 */
export function durations(events: readonly Event[], beganMs: number): number[] | null {
  const ordered = [...events].sort(([a], [b]) => a - b);
  let fromMs = beganMs;
  const taken: number[] = [];
  for (const { until } of steps) {
    const found = ordered.find(([atMs, name]) => atMs >= fromMs && name === until);
    if (!found) return null;
    taken.push(found[0] - fromMs);
    fromMs = found[0];
  }
  return taken;
}
