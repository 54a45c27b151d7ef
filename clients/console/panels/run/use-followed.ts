import { useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { clock, serviceNow } from "../../service/clock.ts";
import { type Followed, follow } from "../../service/follow.ts";
import { isEnded } from "../../service/records.ts";

export interface Following {
  followed: Followed | undefined;
  problem: string | undefined;
}

/** Follows the job with this id, if there is one. */
export function useFollowed(id: string | undefined): ReadonlySignal<Following> {
  const state = useSignal<Following>({ followed: undefined, problem: undefined });
  useEffect(() => {
    state.value = { followed: undefined, problem: undefined };
    if (id === undefined) return undefined;
    const ended = new AbortController();
    follow(id, ended.signal, (followed) => {
      state.value = { followed, problem: undefined };
    }).catch((error: unknown) => {
      if (!ended.signal.aborted)
        state.value = { followed: undefined, problem: (error as Error).message };
    });
    // How long it runs is counted on the page.
    const ticking = setInterval(() => {
      if (!document.hidden && !isEnded(state.value.followed?.record)) clock.value = serviceNow();
    }, 1000);
    return () => {
      ended.abort();
      clearInterval(ticking);
    };
  }, [id]);
  return state;
}
