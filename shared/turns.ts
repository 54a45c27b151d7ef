let turn = Promise.resolve();
let inLine = 0;

/**
 * Lets other requests run. Long work without pauses would block the thread; reads of a local database are such work,
 * because they return at once. All long work of the process takes turns: a turn of the event loop has one piece of it.
 */
export function letOthersRun(): Promise<void> {
  if (isWorkerd) return pause();
  inLine++;
  turn = turn.then(pause).then(() => void inLine--);
  return turn;
}

/**
 * The same for one work that waits for its data anyway: it waits for its turn only if other long work goes on, and not
 * for the end of its own last turn.
 */
export function turnTaker(): () => Promise<void> {
  let own: Promise<void> | undefined;
  return async () => {
    own ??= letOthersRun().then(() => (own = undefined));
    if (inLine > 1) await own;
  };
}

/** A turn of the event loop has so many bytes of answers. */
const bytesAtOnce = 128 * 1024;
let thisTurn = { bytesLeft: bytesAtOnce };

/**
 * Waits until this turn has bytes left, and takes them. Each piece of an answer is short work, but hundreds of clients may
 * take their next pieces in the same turn.
 *
 * @returns A function that gives back what the piece did not need. After the turn it does nothing.
 */
export async function takeBytes(bytes: number): Promise<(unused: number) => void> {
  if (isWorkerd) return () => {};
  while (thisTurn.bytesLeft <= 0) await pause();
  const turn = thisTurn;
  if (turn.bytesLeft === bytesAtOnce) {
    void pause().then(() => (thisTurn = { bytesLeft: bytesAtOnce }));
  }
  turn.bytesLeft -= bytes;
  return (unused) => void (turn.bytesLeft += unused);
}

const pause = (): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, 0);
  });

/** Waits; it ends early when the signal aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end);
  });
}

/** There, no request may wait for another one. */
const isWorkerd =
  (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent ===
  "Cloudflare-Workers";
