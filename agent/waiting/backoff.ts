/** Milliseconds to wait after the n-th failure in a row (from 1): doubled each time, jittered. */
export function backoffMs(failures: number, firstMs: number, capMs: number): number {
  const ms = Math.min(capMs, firstMs * 2 ** (failures - 1));
  return ms * (0.5 + Math.random() / 2);
}
