/**
 * `fetch` for a remote database. A server that does not answer within `timeoutMs` counts as out of
 * reach.
 */
export function boundedFetch(timeoutMs: number): (request: Request) => Promise<Response> {
  return (request) => fetch(request, { signal: AbortSignal.timeout(timeoutMs) });
}

/** Longer than any statement of the API takes. */
export const remoteTimeoutMs = 10_000;
