const SAME_PRESS_MS = 1000;

/**
 * Resolves at the first SIGINT, SIGTERM or SIGHUP; calls `onSecond` at the next. Under npm one
 * Ctrl-C arrives twice, from the terminal and from npm: both count as one.
 */
export async function untilStopSignal(onSecond: () => void): Promise<void> {
  await new Promise<void>((resolve) => {
    let firstAt: number | undefined;
    const onSignal = (): void => {
      const now = performance.now();
      firstAt ??= now;
      if (now - firstAt > SAME_PRESS_MS) onSecond();
      else resolve();
    };
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, onSignal);
  });
}
