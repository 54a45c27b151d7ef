import { letOthersRun } from "../shared/turns.ts";
import { forgetAgents } from "./agents/agents.ts";
import { listAgents } from "./agents/fleet.ts";
import { isLive, totalSlots } from "./agents/placement.ts";
import { sweepLeases, wakeForWaiting } from "./agents/poll.ts";
import { ArtifactOutage, type Deps } from "./deps.ts";
import { keepNeeded, removeExpiredFiles } from "./files/sql.ts";
import { forgetWindowsBefore } from "./http/rate-limit.ts";
import { dropArchives, rebuildLost, sweepBuilds } from "./images/builds.ts";
import { forgetBatches } from "./jobs/batch-sql.ts";
import { pruneDeadLetters } from "./jobs/executions.ts";
import { readQueueStats } from "./jobs/sql.ts";
import { endOverdueJobs } from "./jobs/wait.ts";
import { addMinute, historyMs, lastMinute, minuteMs } from "./monitoring/health.ts";
import { sweepSessions } from "./sessions/lease.ts";
import { forgetSessions } from "./sessions/sql.ts";
import {
  dueRemovals,
  endedBefore,
  forgetRemoval,
  forgetTombstones,
  postponeRemoval,
  removeBuilds,
  removeExecutions,
  removeLease,
} from "./store/retention.ts";
import { pruneAudit } from "./tenants/sql.ts";
import { forgetDeliveries } from "./webhooks/sql.ts";

const hourMs = 3_600_000;

/** Does everything that depends on time alone. */
export async function sweep(deps: Deps): Promise<void> {
  await expire(deps);
  await removeOld(deps);
}

/** Expires leases, ends jobs that waited too long and sessions whose time is over, has lost images built, forgets silent agents, and wakes polls for what waits. Clients wait for this. It writes only if something is due. */
export async function expire(deps: Deps): Promise<void> {
  // Together, because what they read shares a request to the database's server.
  const steps = [
    sweepSessions,
    sweepLeases,
    endOverdueJobs,
    sweepBuilds,
    rebuildLost,
    forgetSilent,
    wakeForWaiting,
  ];
  await Promise.all(steps.map((step) => step(deps)));
}

async function forgetSilent({ db, notifier, now }: Deps): Promise<void> {
  // An agent whose token was revoked may be waiting in a poll, which must now be refused.
  for (const id of await forgetAgents(db, now() - hourMs, now())) notifier.notify(`agent:${id}`);
}

/** Records the minute and removes old data. Nobody waits for this. Returns whether more is left to remove. */
export async function removeOld(deps: Deps): Promise<boolean> {
  const forgotten = forgetWindowsBefore(deps.db, deps.now());
  const [isMore] = await Promise.all([enforceRetention(deps), recordMinute(deps), forgotten]);
  return isMore;
}

const dayMs = 24 * 3_600_000;
/** Longer than a delivery is tried, so that a failed one can be sent again. */
const deliveriesDays = 7;

/** A statement of this size blocks the thread for a few milliseconds. */
const portion = { rows: 50, bytes: 4 * 1024 * 1024 };
const portionsPerSweep = 20;

/**
 * Removes dead letters older than `dlq_retention_days`, executions, sessions and builds older than
 * `execution_retention_days`, entries of the audit log older than `audit_retention_days`, and stored bytes
 * without a record. Returns whether more is left to remove.
 */
async function enforceRetention(deps: Deps): Promise<boolean> {
  const { config, db, now } = deps;
  const { rows } = portion;
  const ago = (days: number): number => now() - days * dayMs;
  const days = config.execution_retention_days;
  const removals: (() => Promise<boolean>)[] = [
    async () => (await pruneDeadLetters(db, ago(config.dlq_retention_days), rows)) === rows,
  ];
  if (days > 0) {
    removals.push(
      () => removeEnded(deps, ago(days)),
      async () => (await removeBuilds(db, ago(days), rows)) === rows,
      async () => (await forgetSessions(db, ago(days), rows)) === rows,
      async () => (await forgetBatches(db, ago(days), rows)) === rows,
      async () => (await forgetTombstones(db, ago(days), rows)) === rows,
    );
  }
  removals.push(
    async () => (await removeExpiredFiles(db, now(), rows, now() + hourMs)) === rows,
    () => forgetDeliveries(db, ago(deliveriesDays), rows),
    async () => (await pruneAudit(db, ago(config.audit_retention_days), rows)) === rows,
  );
  const more = [...removals.map(repeat), removeBytes(deps), dropArchives(deps)];
  return (await Promise.all(more)).some(Boolean);
}

/**
 * Repeats a bounded removal until nothing is left to remove, at most `portionsPerSweep` times. Requests run
 * in between. Returns whether there may be more.
 */
async function repeat(removeSome: () => Promise<boolean>): Promise<boolean> {
  for (let done = 0; done < portionsPerSweep; done++) {
    if (!(await removeSome())) return false;
    await letOthersRun();
  }
  return true;
}

/** Returns whether there may be more. */
async function removeEnded({ db, log, now }: Deps, before: number): Promise<boolean> {
  const ids = await endedBefore(db, before, portion);
  if (ids.length === 0) return false;
  await removeExecutions(db, ids, now() + hourMs);
  log.debug("removed {count} executions that ended before {before}", {
    count: ids.length,
    before: new Date(before).toISOString(),
  });
  return true;
}

/**
 * Bytes are removed an hour after their rows. So every record has its bytes, even a record in a backup
 * of the rows that was made just before. Bytes are kept while an execution refers to them, even if their own
 * execution or file has been removed.
 */
async function removeBytes({ db, artifacts, log, now }: Deps): Promise<boolean> {
  const due = await dueRemovals(db, now(), portion.rows);
  for (const prefix of due) {
    const [executionId = "", leaseId] = prefix.split("/");
    if (leaseId !== undefined) await removeLease(db, executionId, leaseId);
    if (await keepNeeded(db, prefix, now())) continue;
    try {
      await artifacts.remove(prefix);
    } catch (error) {
      // Postponed, so that it does not block removals that can succeed.
      await postponeRemoval(db, prefix, now() + hourMs);
      log.warn("the artifacts under {prefix} cannot be removed, next attempt in an hour: {error}", {
        prefix,
        error,
      });
      // In an outage the others would fail as well, and as slowly.
      if (error instanceof ArtifactOutage) break;
      continue;
    }
    await forgetRemoval(db, prefix);
  }
  await artifacts.removePartial(now() - hourMs);
  return due.length === portion.rows;
}

/** Records the state of the service, once a minute. */
export async function recordMinute({ config, db, now }: Deps): Promise<void> {
  const time = now();
  const at = time - (time % minuteMs);
  if (((await lastMinute(db)) ?? 0) >= at) return;
  const [agents, { pending, running }] = await Promise.all([listAgents(db), readQueueStats(db)]);
  const live = agents.filter((agent) => isLive(agent, config, time));
  const minute = { at, pending, running, slots: totalSlots(live) };
  await addMinute(db, minute, at - historyMs - minuteMs);
}
