/** The candidate that a misspelt word most likely means; undefined if none is near. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  const mostEdits = Math.max(1, Math.floor(word.length / 3));
  let [found, fewest]: [string | undefined, number] = [undefined, mostEdits + 1];
  for (const candidate of candidates) {
    const count =
      Math.abs(candidate.length - word.length) < fewest ? edits(word, candidate) : fewest;
    if (count < fewest) [found, fewest] = [candidate, count];
  }
  return found;
}

/** Characters that are inserted, removed, replaced or swapped with their neighbour to make one word the other. */
function edits(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      next[j] = Math.min(
        row[j]! + 1,
        next[j - 1]! + 1,
        row[j - 1]! + (isSame ? 0 : 1),
        isSwapped ? before[j - 2]! + 1 : Infinity,
      );
    }
    [before, row] = [row, next];
  }
  return row[b.length]!;
}
