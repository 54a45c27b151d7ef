import type { StreamName } from "../../shared/wire/output.ts";
import type { ClientDeps } from "../deps.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { outputEnds } from "../store/output/chunks.ts";
import { resultLengths } from "../store/output/result-parts.ts";
import { resultOutput, storedOutput } from "./output.ts";

/** What the last attempt of a job has written to one stream so far; empty once that attempt is lost. */
export interface Log {
  size: number;
  open: (offset: number, length: number) => ReadableStream<Uint8Array>;
}

export async function readLog(deps: ClientDeps, e: ExecutionRow, stream: StreamName): Promise<Log> {
  const attempt = e.leaseId === null ? e.attempt + 1 : e.attempt;
  const isResult = e.resultHash !== null;
  const sizes = isResult
    ? await resultLengths(deps.db, e.id)
    : await outputEnds(deps.db, { executionId: e.id, attempt });
  async function* parts(offset: number): AsyncGenerator<Uint8Array> {
    let next = offset;
    if (!isResult) {
      const read = storedOutput(deps, e.id, attempt, { ...others, [stream]: offset });
      for await (const { data } of read()) {
        yield data;
        next += data.length;
      }
    }
    // A result that arrived meanwhile has replaced the stored output.
    for await (const { data } of resultOutput(deps, e.id, stream, next, 0)) yield data;
  }
  const others = { stdout: Number.MAX_SAFE_INTEGER, stderr: Number.MAX_SAFE_INTEGER };
  return {
    size: sizes[stream],
    open: (offset, length) => pulled(parts(offset), length),
  };
}

/** The first `length` bytes of parts, read as fast as the client takes them. */
function pulled(parts: AsyncGenerator<Uint8Array>, length: number) {
  let left = length;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const step = left > 0 ? await parts.next() : undefined;
        if (!step || step.done === true) return controller.close();
        const data = step.value.slice(0, left);
        left -= data.length;
        controller.enqueue(data);
      },
      cancel: async () => void (await parts.return(undefined)),
    },
    { highWaterMark: 0 },
  );
}
