/**
 * `fetch` for a remote database: a server that does not answer within `timeoutMs` is one that is
 * out of reach.
 */
export function boundedFetch(timeoutMs: number): (request: Request) => Promise<Response> {
  return (request) => fetch(request, { signal: AbortSignal.timeout(timeoutMs) });
}

/** Longer than any statement of ours takes. */
export const remoteTimeoutMs = 10_000;
