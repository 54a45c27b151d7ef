import { signal } from "@preact/signals";

/** The header has whole seconds and takes a while to arrive: less than this is no difference. */
const leastMs = 5000;

let aheadMs = 0;

/** The service's time. The clock of this machine may be wrong; every time in a record is the service's. */
export const serviceNow = (): number => Date.now() + aheadMs;

/** The service's time as of the last look of any feed. Ages on the page are counted to it. */
export const clock = signal(serviceNow());

/** Takes the service's time from an answer. */
export function learnTime({ headers }: Response): void {
  const ahead = Date.parse(headers.get("Date") ?? "") - Date.now();
  if (!Number.isNaN(ahead)) aheadMs = Math.abs(ahead) < leastMs ? 0 : ahead;
}
