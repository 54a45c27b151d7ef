/**
 * Lets other requests run. A local database answers synchronously, so long work without pauses would keep
 * the thread until its end.
 */
export function letOthersRun(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 0);
  });
}
