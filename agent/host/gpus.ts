export type Gpus = ReturnType<typeof createGpus>;

/** Ends when it is disposed, whether it was granted or not. */
export type GpuLease = Disposable & {
  /** Resolves with the ids once enough are free; never resolves if the host has fewer. */
  readonly ids: Promise<readonly string[]>;
};

const none: GpuLease = { ids: Promise.resolve([]), [Symbol.dispose]: () => {} };

type Waiting = { readonly count: number; readonly grant: (ids: readonly string[]) => void };

/**
 * The host's GPUs. Each belongs to one container at a time, from before its creation until the engine has removed it.
 * `ids`: indices or UUIDs, as the engine accepts them. `changed` is called when GPUs are given back.
 */
export function createGpus(ids: readonly string[], changed: () => void) {
  const free = [...ids];
  const waiting: Waiting[] = [];
  /** How many holders each granted group of GPUs has. */
  const holders = new Map<readonly string[], number>();

  function grant(): void {
    while (waiting[0] && waiting[0].count <= free.length) {
      const next = waiting.shift()!;
      const granted = free.splice(0, next.count);
      holders.set(granted, 1);
      next.grant(granted);
    }
  }

  function letGo(granted: readonly string[]): void {
    const left = (holders.get(granted) ?? 0) - 1;
    if (left > 0) return void holders.set(granted, left);
    if (!holders.delete(granted)) return;
    free.push(...granted);
    grant();
    changed();
  }

  /** Asks for `count` GPUs; leases are granted in the order of the calls. */
  function lease(count: number): GpuLease {
    if (count === 0) return none;
    const { promise, resolve } = Promise.withResolvers<readonly string[]>();
    let granted: readonly string[] | undefined;
    const entry: Waiting = { count, grant: (given) => resolve((granted = given)) };
    waiting.push(entry);
    grant();
    return {
      ids: promise,
      [Symbol.dispose]: once(() => {
        if (granted) return letGo(granted);
        waiting.splice(waiting.indexOf(entry), 1);
        grant();
        changed();
      }),
    };
  }

  /** Holds leased GPUs until the returned function is called, even after the lease has ended. */
  function hold(granted: readonly string[]): () => void {
    const count = holders.get(granted);
    if (count === undefined) return () => {};
    holders.set(granted, count + 1);
    return once(() => letGo(granted));
  }

  const asked = (): number => waiting.reduce((sum, { count }) => sum + count, 0);
  /** GPUs that are not leased, less those that leases are waiting for. */
  const unasked = (): number => Math.max(0, free.length - asked());
  return { total: ids.length, free: unasked, lease, hold };
}

function once(task: () => void): () => void {
  let isDone = false;
  return () => {
    if (isDone) return;
    isDone = true;
    task();
  };
}
