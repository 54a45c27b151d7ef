/**
 * Lets other requests run. Long work without pauses, such as what a local database answers, would keep the thread
 * until its end.
 */
export function letOthersRun(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 0);
  });
}
