import { isTerminal } from "../../shared/wire/execution.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import type { Actor } from "../store/audit.ts";
import { removeExecution } from "../store/retention.ts";
import { requireExecution } from "./read-records.ts";

const hourMs = 3_600_000;

/**
 * Removes a finished execution with its payload, artifacts and dead letter. The bytes of its artifacts
 * are removed an hour later, for the sake of backups: see api/upkeep/retention.ts.
 *
 * @throws AppError 404 when it is unknown; 409 when it has not finished.
 */
export async function remove({ db }: ClientDeps, id: string, by: Actor): Promise<void> {
  const execution = await requireExecution({ db }, id, "Execution");
  if (!isTerminal(execution.status)) {
    throw new AppError("conflict", `Job ${id} has not finished: cancel it first.`, { job_id: id });
  }
  // Another request may have removed it meanwhile.
  if (!(await removeExecution(db, id, by.at + hourMs, by))) throw notFound(`Execution ${id}`);
}
