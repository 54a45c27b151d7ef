/**
 * `unauthorized`: the token is wrong. `incompatible`: the API is of another version of the
 * protocol. `lease_lost`: the lease is another's or over. `rejected`: the
 * same request will never do. `transient`: later it may.
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
  /** Milliseconds the API asks to wait. */
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

  /** Whether nothing that the agent asks will be answered until somebody changes it or the API. */
  get endsAgent(): boolean {
    return this.kind === "unauthorized" || this.kind === "incompatible";
  }
}

/**
 * Of an answer other than 200; below 400 it comes from a proxy, not from the API.
 *
 * @param isOfApi Whether the answer is the API's own: only the API can refuse the agent for good.
 */
export function kindOfStatus(status: number, isOfApi: boolean): ApiErrorKind {
  if (status === 401 || status === 403) return isOfApi ? "unauthorized" : "transient";
  if (status === 409) return "lease_lost";
  if (status < 400 || status === 408 || status === 429 || status >= 500) return "transient";
  return "rejected";
}
