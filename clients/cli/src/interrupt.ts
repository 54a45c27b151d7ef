/** Runs work whose signal aborts at the first Ctrl-C. A second Ctrl-C ends the command at once. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interrupted = new AbortController();
  const stop = () => {
    if (interrupted.signal.aborted) process.exit(130);
    interrupted.abort(new Error("interrupted"));
  };
  process.on("SIGINT", stop).on("SIGTERM", stop);
  try {
    return await work(interrupted.signal);
  } finally {
    process.off("SIGINT", stop).off("SIGTERM", stop);
  }
}
