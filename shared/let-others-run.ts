/**
 * Lets other requests run. Long work without pauses would block the thread; reads of a local database are such work,
 * because they return at once.
 */
export function letOthersRun(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 0);
  });
}
