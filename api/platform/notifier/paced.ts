/**
 * Returns a function that asks for a call of `work`. The call is made at once, or `restMs` after the last
 * one, whichever is later. Requests that come in between share one call.
 */
export function paced(work: () => void, restMs: number): () => void {
  let isResting = false;
  let isAsked = false;
  return function ask() {
    isAsked = isResting;
    if (isResting) return;
    isResting = true;
    work();
    setTimeout(() => {
      isResting = false;
      if (isAsked) ask();
    }, restMs);
  };
}
