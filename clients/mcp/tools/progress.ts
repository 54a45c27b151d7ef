import type { JobEvent } from "../../typescript/src/jobs/stream.ts";
import type { Call } from "./call.ts";

const reportEveryMs = 2000;
/** Characters of the newest output in a report. */
const newestLength = 500;

/** Reports the job's events to the client as progress, until the returned function is called. */
export function startReporting({ airlock, report }: Call, jobId: string): () => void {
  if (!report) return () => {};
  const startedAt = Date.now();
  const ending = new AbortController();
  const seen = { state: "queued", newest: "" };
  let last = 0;
  const tell = (): void => {
    const message = `Job ${jobId}: ${seen.state}\n${seen.newest}`.toWellFormed();
    // The protocol wants progress to increase with each report.
    last = Math.max(last + 0.001, (Date.now() - startedAt) / 1000);
    report(last, message).catch(() => {});
  };
  // Clients that ask for progress may give up a call that reports none.
  const timer = setInterval(tell, reportEveryMs);
  const watch = async (): Promise<void> => {
    for await (const event of airlock.stream(jobId, { signal: ending.signal })) {
      const { state } = seen;
      note(seen, event);
      if (seen.state !== state) tell();
    }
  };
  // If the events fail, reports repeat the last known state, and the call itself returns the error.
  watch().catch(() => {});
  return () => {
    clearInterval(timer);
    ending.abort();
  };
}

function note(seen: { state: string; newest: string }, event: JobEvent): void {
  if (event.event === "status") {
    seen.state = event.data.status === "queued" ? event.data.reason : event.data.status;
  } else if (event.event === "stdout" || event.event === "stderr") {
    seen.newest = (seen.newest + event.data.text).slice(-newestLength);
  } else if (event.event === "retry") seen.newest = "";
}
