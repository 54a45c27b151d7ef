import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { AirlockError, ConnectionError, ProblemError } from "../../typescript/src/errors.ts";
import { sleep } from "../../typescript/src/transport.ts";
import { formatCount, formatThings } from "../model/numbers.ts";
import { messageOf } from "../service/client.ts";
import { allPages, type Source } from "../service/records.ts";
import { announce, Dialog, Problem } from "./elements.tsx";

export interface BulkJob<Item> {
  /** Name of the action, such as "Run again", on its button. */
  title: string;
  /** Name of one item, such as "execution". */
  thing: string;
  /** Shown before the action is confirmed. */
  note?: string;
  isDangerous?: boolean;
  /** Acts on one item. Safe to repeat with the same `run`, an id that differs for each start of the action. */
  act: (item: Item, run: string) => Promise<unknown>;
}

interface Props<Item> {
  job: BulkJob<Item>;
  source: Source<Item>;
  /** Its filters find the items. */
  query: URLSearchParams;
  onEnd: () => void;
}

interface Progress {
  state: "counting" | "ready" | "working" | "stopped" | "done";
  done: number;
  /** Why the service refused single items. The others go on. */
  refusals: string[];
  problem?: string | undefined;
  waits?: string | undefined;
}

const pauseS = 5;

/**
 * Acts on all items that a filter finds. It counts them, asks for confirmation, and acts on one after the
 * other. If the service has no room for the next one, it says so and waits. While it acts, the person can only stop it.
 */
export function Bulk<Item>({ job, source, query, onEnd }: Props<Item>) {
  const { title, thing, note, isDangerous } = job;
  const items = useSignal<Item[]>([]);
  const progress = useSignal<Progress>({ state: "counting", done: 0, refusals: [] });
  const ended = useMemo(() => new AbortController(), []);
  const set = (changes: Partial<Progress>): void => {
    progress.value = { ...progress.value, ...changes };
  };

  useEffect(() => {
    const { signal } = ended;
    void (async () => {
      try {
        for await (const page of allPages(source, query, signal)) {
          items.value = [...items.value, ...page];
        }
        set({ state: "ready" });
      } catch (error) {
        if (!signal.aborted) set({ state: "stopped", problem: messageOf(error) });
      }
    })();
    return () => {
      ended.abort();
      onEnd();
      if (progress.value.state !== "working") return;
      const { done } = progress.value;
      announce(
        `${title}: stopped after ${formatCount(done)} of ${formatThings(items.value.length, thing)}`,
      );
    };
  }, []);

  const last = useRef<HTMLButtonElement>(null);
  const work = async (): Promise<void> => {
    const { signal } = ended;
    // The button that was pressed goes away.
    last.current?.focus();
    const run = `console ${Date.now()} ${Math.random()}`;
    set({ state: "working" });
    for (const item of items.value) {
      try {
        await actInTime(
          () => job.act(item, run),
          signal,
          (waits) => set({ waits }),
        );
        set({ done: progress.value.done + 1, waits: undefined });
      } catch (error) {
        const { message } = error as Error;
        if (signal.aborted || !isOfOne(error)) {
          set({
            state: "stopped",
            problem: signal.aborted ? undefined : message,
            waits: undefined,
          });
          return;
        }
        set({ refusals: [...progress.value.refusals, message], waits: undefined });
      }
    }
    set({ state: "done", waits: undefined });
  };

  const stop = (event: Event): void => {
    // Escape would close the dialog before it has said how far it came.
    event.preventDefault();
    ended.abort();
  };

  const { state, done, refusals, problem, waits } = progress.value;
  const isRefused = refusals.length > 0;
  const count = formatCount(items.value.length);
  const isWorking = state === "working";
  return (
    <Dialog label={title} isHeld={isWorking}>
      <form method="dialog">
        <h2>{title}</h2>
        <p role="status">
          {state === "counting" && `Counting… ${count} so far.`}
          {state === "ready" && `${formatThings(items.value.length, thing)}.`}
          {isWorking && `${formatCount(done)} of ${count} done.`}
          {state === "stopped" && `Stopped after ${formatCount(done)} of ${count}.`}
          {state === "done" &&
            (isRefused
              ? `${formatCount(done)} of ${count} done.`
              : items.value.length === 1
                ? "Done."
                : `All ${count} done.`)}
        </p>
        {isWorking && (
          <progress max={items.value.length} value={done + refusals.length} aria-label={title} />
        )}
        {waits && <p class="quiet">{waits}</p>}
        {state === "ready" && note && <p class="quiet">{note}</p>}
        <Problem text={problem} />
        {isRefused && (
          <p class="quiet">
            {formatCount(refusals.length)} refused. The last one: {refusals.at(-1)}
          </p>
        )}
        <p class="actions">
          {state === "ready" && items.value.length > 0 && (
            <button
              type="button"
              class={isDangerous ? "danger" : "primary"}
              onClick={() => void work()}
            >
              {title} ({count})
            </button>
          )}
          <button ref={last} onClick={isWorking ? stop : undefined}>
            {isWorking ? "Stop" : "Close"}
          </button>
        </p>
      </form>
    </Dialog>
  );
}

/** Acts, and tries again while the service has no room. Throws when it is stopped. */
async function actInTime(
  act: () => Promise<unknown>,
  signal: AbortSignal,
  say: (text: string) => void,
): Promise<void> {
  for (;;) {
    signal.throwIfAborted();
    try {
      await act();
      return;
    } catch (error) {
      if (!isPassing(error)) throw error;
      const seconds = (error instanceof ProblemError && error.retryAfterS) || pauseS;
      say(
        `${error.message} The rest follows as soon as the service accepts it. Keep this dialog open.`,
      );
      await sleep(seconds * 1000, signal);
    }
  }
}

/** A refusal that concerns this item only, such as 404 for one that was deleted meanwhile. */
const isOfOne = (error: unknown): boolean =>
  error instanceof ProblemError && [400, 404, 409, 413, 422].includes(error.status);

const isPassing = (error: unknown): error is AirlockError =>
  error instanceof ConnectionError ||
  (error instanceof ProblemError && [429, 503].includes(error.status));
