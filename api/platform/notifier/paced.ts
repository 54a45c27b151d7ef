/**
 * Returns a function that asks for a call of `work`: at once, or `restMs` after the last one. Requests that
 * come meanwhile are answered by one call, which follows the last of them.
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
