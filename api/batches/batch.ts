import { executionStatuses, isTerminal } from "../../shared/wire/execution.ts";
import type { Batch } from "../../shared/wire/client/batch.ts";
import type { ClientDeps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { timestamp } from "../jobs/record.ts";
import { tellEnd } from "../jobs/followed.ts";
import { cancelMembers, findBatch } from "../store/batches/batches.ts";
import { ofTenant } from "../store/tenant.ts";

/** @throws AppError 404 when the batch is unknown. */
export async function readBatch({ db }: ClientDeps, id: string): Promise<Batch> {
  const found = await findBatch(db, id);
  if (!found) throw notFound(`Batch ${id}`);
  const counts = Object.fromEntries(
    executionStatuses.map((status) => [status, found.counts.get(status) ?? 0]),
  ) as Batch["counts"];
  const members = [...found.counts];
  return {
    batch_id: id,
    created_at: timestamp(found.createdAt),
    total: members.reduce((sum, [, n]) => sum + n, 0),
    finished: members.every(([status]) => isTerminal(status)),
    counts,
    ...ofTenant(db, found),
  };
}

/** Wake-ups are hints, and on Workers each is a request: the others look within seconds. */
const mostWakes = 100;

/**
 * Cancels the members that are queued, and asks the agents of those that run. A repeat changes nothing.
 *
 * @throws AppError 404 when the batch is unknown.
 */
export async function cancelBatch(deps: ClientDeps, id: string): Promise<Batch> {
  const { db, notifier, now } = deps;
  const changed = await cancelMembers(db, id, now());
  const agents = new Set(changed.flatMap(({ agentId }) => agentId ?? []));
  for (const agent of agents) notifier.notify(`agent:${agent}`);
  const ended = changed.filter(({ status }) => isTerminal(status));
  for (const execution of ended.slice(0, mostWakes)) tellEnd(deps, execution);
  return readBatch(deps, id);
}
