import type { StreamName } from "../../shared/wire/output.ts";

/**
 * The position of a client in the events of a job. It names no event: it says what the client has, so that
 * it holds on stored output and on a record alike, in every process.
 */
export interface EventCursor {
  attempt: number;
  /** `new`: has nothing of this attempt. `lost`: has its `retry`. `ended`: has the `end`. */
  state: "new" | "running" | "lost" | "ended";
  /** Streams of which the client has the event `held` or `truncated`. */
  withheld: Record<StreamName, boolean>;
  truncated: Record<StreamName, boolean>;
  /** Bytes of each stream that the client has; always at the boundary of a character. */
  stdout: number;
  stderr: number;
  /** Number of the last item that the client has. */
  items: number;
}

const letters = { new: "n", running: "r", lost: "l", ended: "e" } as const;
const states = Object.fromEntries(
  Object.entries(letters).map(([state, letter]) => [letter, state]),
) as Record<string, EventCursor["state"]>;

export function newCursor(attempt: number): EventCursor {
  const none = { stdout: false, stderr: false };
  return { attempt, state: "new", withheld: none, truncated: none, stdout: 0, stderr: 0, items: 0 };
}

/** The cursor as the id of an event. Clients must not parse it. */
export function formatCursor({
  attempt,
  state,
  withheld,
  truncated,
  stdout,
  stderr,
  items,
}: EventCursor): string {
  const told = [withheld.stdout, withheld.stderr, truncated.stdout, truncated.stderr];
  const bits = told.reduce((sum, isTold, i) => sum + (isTold ? 2 ** i : 0), 0);
  const own = items === 0 ? [] : [items];
  return [attempt, letters[state] + bits.toString(16), stdout, stderr, ...own].join("-");
}

/** Undefined if the text is no cursor. */
export function parseCursor(text: string): EventCursor | undefined {
  const match = /^(\d{1,9})-([nrle])([0-9a-f])-(\d{1,15})-(\d{1,15})(?:-(\d{1,4}))?$/.exec(text);
  if (!match) return undefined;
  const bits = parseInt(match[3]!, 16);
  const isSet = (i: number): boolean => (bits & (2 ** i)) !== 0;
  return {
    attempt: Math.max(1, Number(match[1])),
    state: states[match[2]!]!,
    withheld: { stdout: isSet(0), stderr: isSet(1) },
    truncated: { stdout: isSet(2), stderr: isSet(3) },
    stdout: Number(match[4]),
    stderr: Number(match[5]),
    items: Number(match[6] ?? 0),
  };
}
