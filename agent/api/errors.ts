/**
 * `unauthorized`: the token is wrong. `incompatible`: the API speaks another version of the
 * protocol. `lease_lost`: the lease is over or belongs to another agent. `rejected`: the same
 * request will always fail. `transient`: the same request may succeed later.
 */
export type ApiErrorKind =
  | "unauthorized"
  | "incompatible"
  | "lease_lost"
  | "rejected"
  | "transient";

/** The API refused a request, or could not be reached. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly kind: ApiErrorKind;
  /** Milliseconds that the API asks the agent to wait. */
  readonly retryAfterMs: number;

  constructor(
    kind: ApiErrorKind,
    message: string,
    options: ErrorOptions & { retryAfterMs?: number } = {},
  ) {
    super(message, options);
    this.kind = kind;
    this.retryAfterMs = options.retryAfterMs ?? 0;
  }

  /** Whether every request will fail until an operator changes the agent or the API. */
  get endsAgent(): boolean {
    return this.kind === "unauthorized" || this.kind === "incompatible";
  }
}

/**
 * Classifies an answer other than 200. A status below 400 comes from a proxy, not from the API.
 *
 * @param isOfApi Whether the answer comes from the API itself: only the API can refuse the agent
 *   permanently.
 */
export function kindOfStatus(status: number, isOfApi: boolean): ApiErrorKind {
  if (status === 401 || status === 403) return isOfApi ? "unauthorized" : "transient";
  if (status === 409) return "lease_lost";
  if (status < 400 || status === 408 || status === 429 || status >= 500) return "transient";
  return "rejected";
}
