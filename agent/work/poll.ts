import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type {
  AgentIdentity,
  AgentStatus,
  ImageLanguages,
  LeasedBuild,
  LeasedJob,
  LeasedSession,
  PollRequest,
  ReadyKind,
} from "../../shared/wire/leases.ts";
import type { Client } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import type { EngineMonitor } from "../engine/health.ts";
import type { Gpus } from "../host/gpus.ts";
import type { Inventory } from "../images/images.ts";
import type { Missing } from "../images/transfer.ts";
import type { SandboxSource } from "../sandbox/sandbox.ts";
import { backoffMs, type ChangeSignal, type Clock, OVER } from "../waiting.ts";
import type { Lease, LeaseReply, Leases } from "./leases.ts";

export type PollDeps = StatusDeps & {
  readonly agent: AgentIdentity;
  readonly client: Pick<Client, "poll">;
  readonly changes: ChangeSignal;
  readonly clock: Clock;
  readonly log: Logger;
  readonly start: (lease: Lease) => void;
  readonly startBuild: (lease: Lease<LeasedBuild>) => void;
  readonly startSession: (lease: Lease<LeasedSession>) => void;
  /** Runs a call of a session. */
  readonly startCall: (lease: Lease) => void;
  /** Hands back a job that has no free slot or has run already. */
  readonly refuse: (work: LeasedJob | LeasedSession) => void;
  /** Keeps containers ready for jobs of these kinds. */
  readonly keepReady: (kinds: readonly ReadyKind[], signal: AbortSignal) => Promise<void>;
  /** Fetches those of these images that other agents have built. */
  readonly fetchImages: (references: readonly string[]) => void;
  /** Replaces the token that this host joined with. */
  readonly rotateToken: () => void;
  /** Called when the API has answered a poll and knows the state of every image that it asked about. */
  readonly polled: () => void;
};

/**
 * How long a job that arrived with the answer to a result may run before the pending poll is sent
 * again to list it. A new poll costs both sides about as much as a short job.
 */
export const MISSING_MS = 250;
const LOOK_UP_MS = 5000;
/** Changes of the pool are collected for this long, then reported together. */
const POOL_NEWS_MS = 1000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;

/**
 * Polls the API for work, one long poll after another, until `stop`.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function pollForJobs(deps: PollDeps, stop: AbortSignal): Promise<void> {
  const { clock } = deps;
  const outage = createOutageLog(deps);
  let failures = 0;
  let isNew = true;
  let isKnown = false;
  while (!stop.aborted) {
    const askedMs = clock.nowMs();
    try {
      const wait_s = isKnown ? waitS(deps.leases) : 0;
      isKnown = await pollOnce(deps, { wait_s, is_new: isNew }, outage, stop);
      isNew = false;
      failures = 0;
    } catch (error) {
      if (stop.aborted) return;
      if (!(error instanceof ApiError) || error.endsAgent) throw error;
      // A poll that failed after a long time was cut off, for example by a proxy, and not refused.
      failures = clock.nowMs() - askedMs < LONGEST_WAIT_MS ? failures + 1 : 1;
      const waitMs = Math.max(
        error.retryAfterMs,
        backoffMs(failures, FIRST_WAIT_MS, LONGEST_WAIT_MS),
      );
      outage.failed(error, waitMs);
      await clock.sleep(waitMs, stop).catch(() => {});
    }
  }
}

/**
 * The wait of a poll. It is much shorter than liveness and lease time, because a poll may hang on a
 * dead connection, and a lease that it brings may have begun when the poll was sent.
 */
function waitS(leases: Leases): number {
  const { poll_wait_s, renew_every_s } = leases.intervals();
  return Math.min(poll_wait_s, 2 * renew_every_s);
}

/** Returns whether the API knows the state of every image that it asked about. */
async function pollOnce(
  deps: PollDeps,
  asking: Pick<PollRequest, "wait_s" | "is_new">,
  outage: ReturnType<typeof createOutageLog>,
  stop: AbortSignal,
): Promise<boolean> {
  const { client, leases, calls, builds, sessions, inventory, changes, clock } = deps;
  const outdated = new AbortController();
  const request: PollRequest = {
    ...agentStatus(deps.agent, deps),
    free_slots: freePlaces(deps, leases),
    free_builds: freePlaces(deps, builds),
    ...(sessions.size > 0 && { free_sessions: freePlaces(deps, sessions) }),
    cancelling: [...leases.cancelling(), ...calls.cancelling()],
    watching: [...leases.followed(), ...calls.followed()],
    ...asking,
  };
  const askedMs = clock.nowMs();
  using over = whenOver();
  const toldOfPool = JSON.stringify(request.pool);
  let hasNews = false;
  using _listening = changes.subscribe(() => {
    if (isOutdated(request, deps)) outdated.abort(OVER);
    if (hasNews || toldOfPool === JSON.stringify(deps.sandboxes.stats())) return;
    hasNews = true;
    clock.sleep(POOL_NEWS_MS, over.signal).then(
      () => outdated.abort(OVER),
      () => {},
    );
  });
  try {
    const reply = await client.poll(request, AbortSignal.any([stop, outdated.signal]));
    outage.answered();
    learnLeases(deps, reply, request, askedMs);
    // Jobs of an answer that took too long are skipped: the next answer lists them again while they
    // are leased.
    if (leases.isFresh(askedMs)) {
      for (const job of reply.jobs) accept(deps, job, askedMs);
      for (const build of reply.builds) acceptBuild(deps, build, askedMs);
      for (const session of reply.sessions ?? []) acceptSession(deps, session, askedMs);
    }
    if (reply.rotate === true) deps.rotateToken();
    const lookUp = AbortSignal.any([stop, AbortSignal.timeout(LOOK_UP_MS)]);
    const isKnown = await inventory.want(reply.images_wanted, lookUp);
    deps.fetchImages(reply.images_wanted);
    await deps.keepReady(reply.keep_ready, lookUp);
    if (isKnown) deps.polled();
    return isKnown;
  } catch (error) {
    if (!outdated.signal.aborted || error instanceof ApiError) throw error;
    return true;
  }
}

/** A signal that aborts when it is disposed. */
function whenOver(): Disposable & { readonly signal: AbortSignal } {
  const over = new AbortController();
  return { signal: over.signal, [Symbol.dispose]: () => over.abort(OVER) };
}

const noneMissing: Missing = [];
const noneIfEmpty = (missing: Missing): Missing => (missing.length > 0 ? missing : noneMissing);

/** Whether the pending poll shows the API an outdated state: it could offer more, or it hides a change. */
function isOutdated(request: PollRequest, deps: PollDeps): boolean {
  const { engine, gpus, inventory, leases, calls, builds, sessions } = deps;
  const images = inventory.present();
  return (
    // The API counts jobs that are only uploaded, too: it knows of their slots from the agent alone.
    (freePlaces(deps, leases) > request.free_slots &&
      (request.free_slots === 0 || leases.left() > 0)) ||
    request.gpus.free < (gpus?.free() ?? 0) ||
    leases.isMissing(request.leases, MISSING_MS) ||
    calls.isMissing(request.leases, MISSING_MS) ||
    (request.free_builds === 0 && freePlaces(deps, builds) > 0) ||
    (request.free_sessions === 0 && freePlaces(deps, sessions) > 0) ||
    request.engine.available !== engine.health().available ||
    (request.engine.missing_images ?? noneMissing) !== noneIfEmpty(deps.missingImages()) ||
    request.agent.accepts.languages !== deps.languages.known() ||
    request.breaker.state !== engine.breaker().state ||
    request.images.length !== images.length ||
    !images.every((image) => request.images.includes(image))
  );
}

function accept(deps: PollDeps, job: LeasedJob, askedMs: number): void {
  const { leases, calls } = deps;
  const held = job.call ? calls : leases;
  if (held.has(job.lease_id)) return;
  // A call needs no slot.
  const isWelcome = !held.hasEnded(job.lease_id) && (job.call || leases.free() > 0);
  if (!isWelcome) deps.refuse(job);
  else if (job.call) deps.startCall(calls.take(job, askedMs));
  else deps.start(leases.take(job, askedMs));
}

/** A build without a free slot is skipped: a later poll with a free slot brings it again. */
function acceptBuild({ builds, startBuild }: PollDeps, build: LeasedBuild, askedMs: number): void {
  if (!builds.has(build.lease_id) && builds.free() > 0) startBuild(builds.take(build, askedMs));
}

function acceptSession(
  { sessions, startSession, refuse }: PollDeps,
  session: LeasedSession,
  askedMs: number,
): void {
  const { lease_id } = session;
  // One that was dropped here: the API would renew and list it for as long as it starts.
  if (sessions.hasEnded(lease_id)) refuse(session);
  else if (sessions.free() > 0 && !sessions.has(lease_id))
    startSession(sessions.take(session, askedMs));
}

type StatusDeps = {
  readonly leases: Leases;
  /** Builds use no slot: one may run while every slot runs a job. */
  readonly builds: Leases<LeasedBuild>;
  /** Calls of its sessions: they use no slot. */
  readonly calls: Leases;
  readonly sessions: Leases<LeasedSession>;
  readonly engine: EngineMonitor;
  readonly inventory: Inventory;
  /** Null where the host has none. */
  readonly gpus: Pick<Gpus, "total" | "free"> | null;
  readonly sandboxes: Pick<SandboxSource, "stats" | "mountsFiles">;
  /** Built images that the API wants here and that could not be fetched, with the reason. */
  readonly missingImages: () => Missing;
  /** What images have of the usual languages. */
  readonly languages: { readonly known: () => ImageLanguages };
};

/** The current state of the agent, as sent to the API. */
function agentStatus(agent: AgentIdentity, deps: StatusDeps): AgentStatus {
  const { leases, builds, calls, sessions, engine, gpus, inventory, sandboxes } = deps;
  const { missingImages, languages } = deps;
  const kinds = sandboxes.stats();
  const missing_images = missingImages();
  const inputs = sandboxes.mountsFiles() ? ("mount" as const) : ("frames" as const);
  return {
    agent: { ...agent, accepts: { ...agent.accepts, inputs, languages: languages.known() } },
    slots: leases.size,
    gpus: { total: gpus?.total ?? 0, free: gpus?.free() ?? 0 },
    warm: kinds.reduce((sum, { ready }) => sum + ready, 0),
    pool: kinds,
    engine: { ...engine.health(), ...(missing_images.length > 0 && { missing_images }) },
    breaker: engine.breaker(),
    leases: [...leases.ids(), ...calls.ids()],
    builds: builds.ids(),
    ...(sessions.size > 0 && { sessions: sessions.ids() }),
    images: [...inventory.present()],
  };
}

/** How many jobs, builds or sessions the agent can take now. */
function freePlaces(
  { engine }: Pick<StatusDeps, "engine">,
  held: Pick<Leases, "size" | "free">,
): number {
  return engine.slotsToOffer(held.free(), held.size - held.free());
}

/** Applies a reply to a status to all leases. */
function learnLeases(
  { leases, calls, builds, sessions }: StatusDeps,
  reply: LeaseReply,
  status: AgentStatus,
  askedMs: number,
): void {
  leases.learn(reply, status.leases, askedMs);
  calls.learn(reply, status.leases, askedMs);
  builds.learn(reply, status.builds, askedMs);
  sessions.learn(reply, status.sessions ?? [], askedMs);
}

type RenewDeps = StatusDeps & {
  readonly agent: AgentIdentity;
  readonly client: Pick<Client, "renew">;
  readonly clock: Clock;
  readonly log: Logger;
};

const FIRST_RENEWAL_WAIT_MS = 500;

/**
 * Renews the held leases at the API's interval until `end`, independently of the poll.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function renewLeases(deps: RenewDeps, end: AbortSignal): Promise<void> {
  const { client, leases, builds, calls, sessions, clock, log } = deps;
  const holdsNone = (): boolean =>
    [leases, builds, calls, sessions].every((held) => held.ids().length === 0);
  let failures = 0;
  while (!end.aborted) {
    const everyMs = leases.intervals().renew_every_s * 1000;
    const waitMs = failures === 0 ? everyMs : backoffMs(failures, FIRST_RENEWAL_WAIT_MS, everyMs);
    await clock.sleep(waitMs, end).catch(() => {});
    if (end.aborted || holdsNone()) continue;
    const status = agentStatus(deps.agent, deps);
    const askedMs = clock.nowMs();
    try {
      // A renewal that hangs is given up when the next one is due.
      const reply = await client.renew(status, leases.intervals().renew_every_s * 1000, end);
      learnLeases(deps, reply, status, askedMs);
      failures = 0;
    } catch (error) {
      if (end.aborted) return;
      if (!(error instanceof ApiError) || error.endsAgent) throw error;
      failures += 1;
      const reason = describeError(error);
      if (failures === 1) log.warn("renewal failed: {reason}", { reason });
      else log.debug("renewal failed again: {reason}", { reason });
    }
  }
}

/** Logs one line when an outage of the API begins and one when it ends; failures in between only at debug level. */
function createOutageLog({ log, clock }: Pick<PollDeps, "log" | "clock">) {
  let sinceMs: number | null = null;

  function failed(error: unknown, waitMs: number): void {
    const values = { seconds: (waitMs / 1000).toFixed(1), reason: describeError(error) };
    const line = "poll failed, next in {seconds} s: {reason}";
    if (sinceMs === null) log.warn(line, values);
    else log.debug(line, values);
    sinceMs ??= clock.nowMs();
  }

  function answered(): void {
    if (sinceMs === null) return;
    const seconds = ((clock.nowMs() - sinceMs) / 1000).toFixed(1);
    log.info("the API answers again, after {seconds} s", { seconds });
    sinceMs = null;
  }

  return { failed, answered };
}
