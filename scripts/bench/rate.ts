/**
 * Times per second that `workers` at once get a task done: what ends in `forMs`, after a lead-in that
 * uses up what lay ready.
 */
export async function rate(
  workers: number,
  { leadInMs, forMs }: { leadInMs: number; forMs: number },
  task: () => Promise<unknown>,
): Promise<number> {
  const from = performance.now() + leadInMs;
  const to = from + forMs;
  let done = 0;
  const work = async (): Promise<void> => {
    while (performance.now() < to) {
      await task();
      const now = performance.now();
      if (now >= from && now < to) done += 1;
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  return done / (forMs / 1000);
}
