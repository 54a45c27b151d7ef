import { ProblemError } from "../../../typescript/src/index.ts";
import type { Tool } from "../tool.ts";

type Stream = "stdout" | "stderr";

/** Between two readings of the same stream, so that they take little of the rate limit. */
const everyMs = 2000;

/**
 * Writes the output of a job as its events bring it. They bring text: bytes that are not UTF-8 are U+FFFD in
 * it. Where the output goes into a file or a pipe, the bytes themselves are read from there on, if it is written
 * from its beginning (`isWhole`).
 */
export function outputWriter(
  { airlock, terminal }: Tool,
  jobId: string,
  { isWhole, signal }: { isWhole: boolean; signal: AbortSignal | undefined },
) {
  const written = { stdout: 0, stderr: 0 };
  const readAt: Partial<Record<Stream, number>> = {};
  const put = (stream: Stream, bytes: string | Uint8Array): Promise<void> =>
    stream === "stdout" ? terminal.write(bytes) : terminal.writeError(bytes);

  async function readOn(stream: Stream): Promise<void> {
    readAt[stream] = performance.now();
    const path = `/jobs/${jobId}/logs?stream=${stream}&offset=${written[stream]}`;
    try {
      const answer = await airlock.request(path, {}, { signal });
      const bytes = Buffer.from(await answer.arrayBuffer());
      written[stream] += bytes.length;
      await put(stream, bytes);
    } catch (error) {
      // The job has started again, and has written less so far.
      if (!(error instanceof ProblemError) || error.status !== 416) throw error;
    }
  }

  return {
    async write(stream: Stream, text: string): Promise<void> {
      const last = readAt[stream];
      const isBytes = isWhole && text.includes("\uFFFD") && !process[stream].isTTY;
      if (last === undefined && !isBytes) {
        written[stream] += Buffer.byteLength(text);
        return put(stream, text);
      }
      if (performance.now() - (last ?? -everyMs) >= everyMs) await readOn(stream);
    },
    restart(): void {
      written.stdout = written.stderr = 0;
    },
    /** Writes what is left, once the job has ended. */
    async end(): Promise<void> {
      for (const stream of ["stdout", "stderr"] as const) {
        if (readAt[stream] !== undefined) await readOn(stream);
      }
    },
  };
}
