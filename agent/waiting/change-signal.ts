/** Notifies listeners that the agent's capacity or state has changed. */
export type ChangeSignal = {
  readonly notify: () => void;
  /** Listens until the result is disposed. */
  readonly subscribe: (listener: () => void) => Disposable;
  /** Waits until `holds` returns true; checks it after each change. */
  readonly waitUntil: (holds: () => boolean) => Promise<void>;
};

export function createChangeSignal(): ChangeSignal {
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

  return {
    notify: () => listeners.forEach((listener) => listener()),
    subscribe: listen,
    waitUntil: until,
  };
}
