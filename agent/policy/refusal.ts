import type { ExecutionErrorType } from "../../shared/wire/errors.ts";

/** The job did not start and is not retried; its submitter sees the message. */
export class JobRefusal extends Error {
  override name = "JobRefusal";
  readonly type: ExecutionErrorType;

  constructor(type: ExecutionErrorType, message: string, options: ErrorOptions = {}) {
    super(message, options);
    this.type = type;
  }
}
