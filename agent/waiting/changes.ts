/** Tells whoever listens that what the agent may take on has changed. */
export type Changes = {
  readonly tell: () => void;
  /** Listens until disposed of. */
  readonly listen: (listener: () => void) => Disposable;
  /** Waits until `holds`, looking again at each change. */
  readonly until: (holds: () => boolean) => Promise<void>;
};

export function createChanges(): Changes {
  const listeners = new Set<() => void>();

  const listen = (listener: () => void): Disposable => {
    listeners.add(listener);
    return { [Symbol.dispose]: () => listeners.delete(listener) };
  };

  async function until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      using _listening = listen(resolve);
      await promise;
    }
  }

  return { tell: () => listeners.forEach((listener) => listener()), listen, until };
}
