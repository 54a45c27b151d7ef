import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { putLast } from "../../shared/lru.ts";
import type {
  Intervals,
  LeasedBuild,
  LeasedJob,
  LeasedSession,
  RenewReply,
} from "../../shared/wire/leases.ts";
import type { Client } from "../client/client.ts";
import { type ChangeSignal, type Clock, createChangeSignal, OVER } from "../waiting.ts";

/** Reason to end a run early; its result is still reported. */
export class RunCancelled extends Error {
  override name = "RunCancelled";
  readonly by: "request" | "stop";

  constructor(by: "request" | "stop") {
    super(by === "request" ? "cancelled by request" : "the agent stops");
    this.by = by;
  }
}

/** Reason to end a run whose lease is no longer held by this agent; nothing more is posted. */
export class LeaseDropped extends Error {
  override name = "LeaseDropped";
}

/** A leased execution, build or session that this agent holds. */
export type Lease<Work extends Leased = LeasedJob> = {
  readonly job: Work;
  readonly takenMs: number;
  /** Aborted with RunCancelled to end the run; the result so far is reported. */
  readonly cancel: AbortController;
  /** Aborted with LeaseDropped when the agent no longer holds the lease: the run ends and nothing more is posted. */
  readonly drop: AbortController;
  /**
   * The result or release is being posted. Only the answer to that post says whether the lease was
   * still held; a `lost` in a poll's reply is ignored, because it may have crossed the post.
   */
  isReporting: boolean;
  /** Whether somebody follows the job. */
  readonly followed: ReturnType<typeof createFollowed>;
  /** Whether it takes a place. Once its sandbox is gone, another lease may have the place. */
  readonly holdsPlace: () => boolean;
  /** Gives the place back while files are uploaded, unless as many leases as there are places have done so. */
  readonly leavePlace: () => void;
};

type Leased = LeasedJob | LeasedBuild | LeasedSession;

/** The part of a reply that concerns leases. */
export type LeaseReply = Pick<RenewReply, "cancel" | "lost" | "intervals" | "watch">;

export type Leases<Work extends Leased = LeasedJob> = ReturnType<typeof createLeases<Work>>;

type Held<Work extends Leased> = {
  readonly lease: Lease<Work>;
  readonly over: AbortController;
  renewedMs: number;
  isLost: boolean;
  hasLeft: boolean;
};

/** A lease is given up when this fraction of its time is left: the agent cannot see the API's clock. */
const MARGIN = 0.1;
/** More leases than can end while one answer is in transit. */
const ENDED_KEPT = 1000;

export function createLeases<Work extends Leased = LeasedJob>(
  { clock, changes }: { clock: Clock; changes: ChangeSignal },
  size: number,
  defaults: Intervals,
) {
  const held = new Map<string, Held<Work>>();
  const ended = new Map<string, true>();
  let intervals = defaults;

  const leftMs = (askedMs: number): number =>
    askedMs + intervals.lease_ttl_s * 1000 * (1 - MARGIN) - clock.nowMs();

  /** Whether a lease that was requested at `askedMs` lasts long enough to be renewed. */
  function isFresh(askedMs: number): boolean {
    const { lease_ttl_s, renew_every_s } = intervals;
    return leftMs(askedMs) >= Math.min(renew_every_s, lease_ttl_s / 4) * 1000;
  }

  /** Drops the lease if it is not renewed in time, even if the API still counts it as held. */
  async function dropUnlessRenewed(entry: Held<Work>): Promise<void> {
    const { signal } = entry.over;
    const left = (): number => leftMs(entry.renewedMs);
    for (let ms = left(); ms > 0 && !signal.aborted; ms = left()) {
      await clock.sleep(ms, signal).catch(() => {});
    }
    if (!signal.aborted) entry.lease.drop.abort(new LeaseDropped("not renewed in time"));
  }

  /** Holds the lease of a job that was requested at `askedMs`. */
  function take(job: Work, askedMs: number): Lease<Work> {
    const cancel = new AbortController();
    const drop = new AbortController();
    const isFollowed = "watch" in job && job.watch;
    const lease: Lease<Work> = {
      job,
      takenMs: clock.nowMs(),
      cancel,
      drop,
      isReporting: false,
      followed: createFollowed(isFollowed),
      holdsPlace: () => !entry.hasLeft,
      leavePlace: () => {
        if (left() >= size) return;
        entry.hasLeft = true;
        changes.notify();
      },
    };
    const over = new AbortController();
    const entry: Held<Work> = { lease, over, renewedMs: askedMs, isLost: false, hasLeft: false };
    held.set(job.lease_id, entry);
    void dropUnlessRenewed(entry);
    changes.notify();
    return lease;
  }

  function forget({ job }: Lease<Work>): void {
    held.get(job.lease_id)?.over.abort(OVER);
    held.delete(job.lease_id);
    putLast(ended, job.lease_id, true, ENDED_KEPT);
  }

  function end(lease: Lease<Work>): void {
    forget(lease);
    changes.notify();
  }

  /** Ends a lease and holds another job's lease in the same slot, with no free slot in between. */
  function replace(ended: Lease<Work>, job: Work, askedMs: number): Lease<Work> {
    forget(ended);
    return take(job, askedMs);
  }

  /**
   * Whether a lease that is not in `listed` has been held for `ms` or longer: its cancellation
   * would not reach the agent.
   */
  function isMissing(listed: readonly string[], ms: number): boolean {
    const before = clock.nowMs() - ms;
    return [...held.values()].some(
      ({ lease, isLost }) =>
        lease.takenMs <= before && !isLost && !listed.includes(lease.job.lease_id),
    );
  }

  /** Applies the reply to a request that listed the leases `listed` and was sent at `askedMs`. */
  function learn(reply: LeaseReply, listed: readonly string[], askedMs: number): void {
    intervals = reply.intervals;
    for (const id of reply.cancel) held.get(id)?.lease.cancel.abort(new RunCancelled("request"));
    for (const id of reply.lost) lose(held.get(id));
    for (const id of listed) {
      const entry = held.get(id);
      if (!entry) continue;
      // The API renewed the lease after the request was sent.
      entry.renewedMs = Math.max(entry.renewedMs, askedMs);
      entry.lease.followed.learn({ watch: reply.watch?.includes(id) });
    }
  }

  function lose(entry: Held<Work> | undefined): void {
    if (!entry) return;
    entry.isLost = true;
    if (entry.lease.isReporting) return;
    entry.lease.drop.abort(new LeaseDropped("the API gave the lease up"));
  }

  /** Leases that are only uploaded. */
  const left = (): number => [...held.values()].filter(({ hasLeft }) => hasLeft).length;
  const all = (): Lease<Work>[] => [...held.values()].map(({ lease }) => lease);
  return {
    size,
    /** Places that no lease takes. Leases that are only uploaded take none. */
    free: () => size - held.size + left(),
    left,
    isIdle: () => held.size === 0,
    has: (leaseId: string) => held.has(leaseId),
    all,
    /** Held leases, without those that the API has already reported as lost. */
    ids: () => [...held].filter(([, { isLost }]) => !isLost).map(([id]) => id),
    /** Held leases that are being cancelled already. */
    cancelling: () =>
      all()
        .filter(({ cancel }) => cancel.signal.aborted)
        .map(({ job }) => job.lease_id),
    /** Held leases that the agent knows to be followed. */
    followed: () =>
      all()
        .filter(({ followed }) => followed.isOn())
        .map(({ job }) => job.lease_id),
    intervals: () => intervals,
    isFresh,
    take,
    end,
    replace,
    /** Whether the lease ended here recently: its code must not run a second time. */
    hasEnded: (leaseId: string) => ended.has(leaseId),
    isMissing,
    learn,
    cancelAll: () => all().forEach(({ cancel }) => cancel.abort(new RunCancelled("stop"))),
    dropAll: () => all().forEach(({ drop }) => drop.abort(new LeaseDropped("the agent ends"))),
  };
}

/** Whether a run is cancelled because the agent stops. */
export function isStopped({ cancel }: Pick<Lease, "cancel">): boolean {
  const reason: unknown = cancel.signal.reason;
  return reason instanceof RunCancelled && reason.by === "stop";
}

/** Whether somebody follows a job: then its output is posted as it comes. */
function createFollowed(isFollowed = false) {
  const changes = createChangeSignal();
  let isOn = isFollowed;
  return {
    isOn: () => isOn,
    /** Applies an answer of the API. An answer without the field changes nothing. */
    learn({ watch = isOn }: { readonly watch?: boolean | undefined }): void {
      const begins = watch && !isOn;
      isOn = watch;
      if (begins) changes.notify();
    },
    /** Calls the listener when somebody begins to follow the job. Disposing the result ends that. */
    subscribe: changes.subscribe,
  };
}

type ReportCrashDeps = {
  readonly client: Pick<Client, "reportCrash">;
  /** Called when a report has ended: what the dead agent left can be removed now. */
  readonly onReported: () => void;
  readonly log: Logger;
};

/**
 * Reports agents of this host whose processes have died, so that their jobs are leased again at
 * once, not only when their leases expire. The returned function starts the report and returns
 * whether it has ended; it does not wait, so call it again later.
 */
export function createCrashReporter(
  { client, onReported, log }: ReportCrashDeps,
  end: AbortSignal,
): (agentId: string) => boolean {
  const isKnown = new Map<string, boolean>();

  async function report(agentId: string): Promise<void> {
    try {
      await client.reportCrash(agentId, end);
    } catch (error) {
      if (end.aborted) return;
      // The dead agent may have had another token; then its leases expire by themselves.
      log.warn("could not report the crash of agent {agentId}: {reason}", {
        agentId,
        reason: describeError(error),
      });
    }
    isKnown.set(agentId, true);
    onReported();
  }

  return (agentId) => {
    const known = isKnown.get(agentId);
    if (known === undefined) {
      isKnown.set(agentId, false);
      void report(agentId);
    }
    return known ?? false;
  };
}
