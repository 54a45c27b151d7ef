import { createHash } from "node:crypto";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { expect } from "vitest";
import { recordAgent } from "../agents/agents.ts";
import { claimNext } from "../agents/claim.ts";
import {
  recordLog,
  recordResult,
  recordStart,
  releaseLease,
  requireLease,
  storeUpload,
} from "../agents/posts.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorStatus } from "../errors.ts";
import { expireLeases, renewalGain, renewLeases, undeliveredLeases } from "../jobs/lease.ts";
import { findExecution } from "../jobs/sql.ts";
import { submitExecution } from "../jobs/submit.ts";
import { cancel } from "../jobs/wait.ts";
import { database, type Database } from "../store/database.ts";
import { ScriptedAgent, success } from "./scripted-agent.ts";
import {
  afterPowerCut,
  artifactName,
  checkAgainstModel,
  checkInvariants,
  type Known,
  logText,
  outcomes,
  resultText,
  snapshot,
  type Snapshot,
  StoreModel,
  walBytes,
} from "./store-model.ts";
import { clientOf, jobType, newExecution, offers, openIn, testDeps } from "./temp-store.ts";

/** A real store, and the model of its expected content. */
export class StoreWorld {
  readonly #model = new StoreModel();
  readonly #folder: string;
  readonly #url: string | undefined;
  /** Leases that each agent knows. */
  readonly #held = new Map(agentIds.map((id) => [id, new Set<string>()]));
  #db: Database;
  #seen: Snapshot = { rows: [], letters: [], queued: 0, miscounted: [], shown: new Map() };

  private constructor(folder: string, db: Database, url?: string) {
    this.#folder = folder;
    this.#db = db;
    this.#url = url;
  }

  /** Starts from a copy of a file that `makeStart` made. */
  static async open(startFile: string): Promise<StoreWorld> {
    const folder = mkdtempSync(join(tmpdir(), "airlock-model-"));
    copyFileSync(startFile, join(folder, "airlock.db"));
    return new StoreWorld(folder, database(await openIn(folder)));
  }

  /** The same over a libSQL server that has the agents and nothing else. It cannot cut the power. */
  static async over(url: string): Promise<StoreWorld> {
    const folder = mkdtempSync(join(tmpdir(), "airlock-model-"));
    return new StoreWorld(folder, database(await openIn(folder, url)), url);
  }

  close(): void {
    this.#db.client.close();
    rmSync(this.#folder, { recursive: true });
  }

  /** Takes a step, checks all invariants, and returns the outcome. */
  async run(step: Step): Promise<string> {
    if (step.do === "cut power") return this.#cutPower(step);
    const outcome = await this.#take(step);
    const now = await snapshot(this.#db);
    checkInvariants(this.#seen, now, maxQueueSize);
    checkAgainstModel(this.#model, now);
    this.#seen = now;
    return outcome;
  }

  async #take(step: Exclude<Step, StepOf<"cut power">>): Promise<string> {
    switch (step.do) {
      case "submit":
        return this.#submit(step);
      case "claim":
        return this.#claim(step);
      case "redeliver":
        return this.#redeliver(step);
      case "renew":
        return this.#renew(step);
      case "post":
        return this.#post(step);
      case "cancel":
        return this.#cancel(step);
      case "expire":
        return this.#expire(step);
      case "restart":
        this.#db.client.close();
        this.#db = database(await openIn(this.#folder, this.#url));
        return "restart";
      case "wait":
        this.#model.now += step.ms;
        return "wait";
      case "nothing":
        return "nothing";
    }
  }

  async #submit({ mode, key, payload }: StepOf<"submit">): Promise<string> {
    const model = this.#model;
    const holder = model.byKey(key);
    const waiting = model.withStatus("queued").length;
    const times = { availableAt: model.now, createdAt: model.now };
    const execution = newExecution({
      mode,
      submissionHash: payload,
      idempotencyKey: key,
      ...times,
    });
    const submitted = await submitExecution(this.#db, execution, maxQueueSize);
    if (holder) {
      const { id, payload: submissionHash } = holder;
      expect(submitted).toEqual({ kind: "existing", id, submissionHash });
    } else if (waiting >= maxQueueSize) {
      expect(submitted).toMatchObject({ kind: "full", tenant: { queued: waiting } });
    } else {
      const queuePosition = mode === "sync" ? 0 : waiting + 1;
      expect(submitted).toEqual({ kind: "accepted", queuePosition });
      model.accept({ id: execution.id, mode, key, payload });
    }
    return submitted.kind;
  }

  async #claim({ agent, count, replyLost }: StepOf<"claim">): Promise<string> {
    const due = this.#model.claimable().slice(0, count);
    const terms = this.#terms(agent);
    const claimed = await claimNext(this.#db, terms, { slots: count, gpus: 0 }, offers);
    expect(claimed.map(({ id }) => id)).toEqual(due.map(({ id }) => id));
    for (const [i, known] of due.entries()) {
      const leaseId = claimed[i]?.leaseId ?? "";
      this.#model.noteLease(leaseId, known.id);
      this.#model.apply(known, { kind: "claim", leaseId, ...terms });
      if (!replyLost) this.#held.get(terms.agentId)?.add(leaseId);
    }
    return due.length
      ? `claim${due.some(({ state }) => state.attempt > 1) ? " again" : ""}`
      : "no job";
  }

  async #redeliver({ agent, count, replyLost }: StepOf<"redeliver">): Promise<string> {
    const terms = this.#terms(agent);
    const held = this.#held.get(terms.agentId)!;
    const missed = this.#model.known
      .filter((known) => this.#model.holds(known) && known.state.agentId === terms.agentId)
      .filter(({ state }) => state.codeStartedAt === null && !held.has(state.leaseId ?? ""))
      .slice(0, count);
    const given = await undeliveredLeases(this.#db, terms, [...held], count, [jobType]);
    expect(given.map(({ id }) => id)).toEqual(missed.map(({ id }) => id));
    for (const known of missed) {
      const leaseId = known.state.leaseId ?? "";
      this.#model.apply(known, { kind: "renew", leaseId, ...terms });
      if (!replyLost) held.add(leaseId);
    }
    return missed.length ? "redeliver" : "nothing missed";
  }

  async #renew({ agent, alsoLease }: StepOf<"renew">): Promise<string> {
    const terms = this.#terms(agent);
    const held = this.#held.get(terms.agentId)!;
    const listed = [...new Set([...held, ...this.#lease(alsoLease)])];
    const own = listed
      .map((leaseId) => this.#model.byLease(leaseId))
      .filter(
        (known) => known && this.#model.holds(known) && known.state.agentId === terms.agentId,
      );
    const renewed = await renewLeases(this.#db, terms, listed);
    const expected = own.map((known) => ({
      leaseId: known?.state.leaseId,
      cancelRequested: known?.state.cancelRequested,
      followedUntil: null,
    }));
    expect(renewed).toHaveLength(expected.length);
    expect(renewed).toEqual(expect.arrayContaining(expected));
    const enoughAt = terms.expiresAt - leaseTtlMs * renewalGain;
    if (own.some((known) => (known?.state.leaseExpiresAt ?? 0) < enoughAt)) {
      for (const { leaseId } of renewed) {
        this.#model.apply(this.#model.byLease(leaseId)!, { kind: "renew", leaseId, ...terms });
      }
    }
    const kept = new Set(renewed.map(({ leaseId }) => leaseId));
    for (const leaseId of held) if (!kept.has(leaseId)) held.delete(leaseId);
    if (listed.length > renewed.length) return "renew, some lost";
    return renewed.some(({ cancelRequested }) => cancelRequested) ? "renew, cancel told" : "renew";
  }

  async #post(step: StepOf<"post">): Promise<string> {
    const [leaseId] = this.#lease(step.lease);
    if (leaseId === undefined) return "no lease yet";
    const known = this.#model.byLease(leaseId);
    const holder = known?.state.agentId ?? "";
    const agentId = step.byAnother ? agentIds.find((id) => id !== holder)! : holder;
    const expected = known ? this.#expectPost(known, leaseId, step) : 409;
    expect(await statusOf(() => sendPost(this.#deps(), leaseId, tokenOf(agentId), step))).toBe(
      expected,
    );
    if (expected === 200 && (step.what === "result" || step.what === "release")) {
      this.#held.get(holder)?.delete(leaseId);
    }
    if (known?.state.status === "queued") await this.#learnRetryTime(known);
    return `${step.what} ${expected}${known?.state.status === "queued" ? " requeued" : ""}`;
  }

  /** Applies a post to the model and returns the expected answer. */
  #expectPost(known: Known, leaseId: string, { what, body, byAnother }: StepOf<"post">): number {
    if (byAnother) return 403;
    if (what === "log" && known.posts.has("result")) return 200;
    const earlier = what === "release" ? undefined : known.posts.get(what);
    if (earlier !== undefined) return earlier === body ? 200 : 409;
    if (!this.#applyPost(known, leaseId, what, body)) return 409;
    known.posts.set(what, body);
    return 200;
  }

  #applyPost(known: Known, leaseId: string, what: Post, body: number): boolean {
    const model = this.#model;
    switch (what) {
      case "log":
      case "upload":
        return model.holds(known);
      case "start":
        return model.apply(known, { kind: "start", leaseId });
      case "result": {
        const { exit_code: exitCode, ...ended } = outcomes[body]!;
        return model.apply(known, { kind: "complete", leaseId, exitCode, ...ended });
      }
      case "release":
        return model.apply(known, {
          kind: "release",
          leaseId,
          error: releaseError,
          retryAt: model.now,
        });
    }
  }

  /** A released execution waits for a random delay that the API picks. */
  async #learnRetryTime({ id, state }: Known): Promise<void> {
    const row = await findExecution(this.#db, id);
    const delayMs = (row?.availableAt ?? 0) - this.#model.now;
    expect(delayMs).toBeGreaterThanOrEqual(0);
    expect(delayMs).toBeLessThanOrEqual(1000);
    state.availableAt = row?.availableAt ?? 0;
  }

  async #cancel({ execution }: StepOf<"cancel">): Promise<string> {
    const known = this.#model.known.at(-1 - (execution % (this.#model.known.length || 1)));
    if (!known) return "no execution yet";
    const isCancelled =
      this.#model.apply(known, { kind: "cancel" }) || known.state.status === "cancelled";
    const expected = isCancelled ? 200 : 409;
    expect(await statusOf(() => cancel(clientOf(this.#deps()), known.id))).toBe(expected);
    return `cancel ${expected} ${known.state.status}`;
  }

  async #expire({ afterMs }: StepOf<"expire">): Promise<string> {
    this.#model.now += afterMs;
    const due = this.#model
      .withStatus("running")
      .filter((known) => this.#model.apply(known, { kind: "expire" }));
    const expired = await expireLeases(this.#db, this.#model.now);
    expect(new Set(expired.map(({ id }) => id))).toEqual(new Set(due.map(({ id }) => id)));
    return due.length ? `expire ${due.at(-1)?.state.status}` : "none due";
  }

  /** Takes a step, and checks what a power cut during its writes would leave. */
  async #cutPower({ during, writtenOfTen, garbage }: StepOf<"cut power">): Promise<string> {
    const before = this.#seen;
    const bytesBefore = walBytes(this.#folder);
    await this.run(during);
    const written = ((walBytes(this.#folder) - bytesBefore) * writtenOfTen) / 10;
    const left = await afterPowerCut(this.#folder, bytesBefore + written, garbage);

    checkInvariants({ ...before, rows: [] }, left, maxQueueSize);
    if (writtenOfTen === 10) expect(left).toEqual(this.#seen);
    for (const [i, row] of left.rows.entries()) {
      expect([before.rows[i], this.#seen.rows[i]]).toContainEqual(row);
    }
    expect(left.rows.length).toBeGreaterThanOrEqual(before.rows.length);
    return isDeepStrictEqual(left.rows, before.rows) ? "cut, nothing written" : "cut, all written";
  }

  #deps(): Deps {
    return testDeps(this.#db, this.#folder, () => this.#model.now);
  }

  #terms(agent: number) {
    const { now } = this.#model;
    return { agentId: agentIds[agent % agentIds.length]!, expiresAt: now + leaseTtlMs, now };
  }

  /** One of the leases ever given, if there is any. */
  #lease(pick: number): string[] {
    const { leases } = this.#model;
    return leases.length ? [leases.at(-1 - (pick % leases.length))!] : [];
  }
}

async function statusOf(send: () => Promise<unknown>): Promise<number> {
  try {
    await send();
    return 200;
  } catch (error) {
    if (error instanceof AppError) return errorStatus[error.code];
    throw error;
  }
}

const tokenOf = (agentId: string): string => `token of ${agentId}`;

export async function recordAgents(db: Database): Promise<void> {
  for (const id of agentIds) {
    const status = new ScriptedAgent("", "").status();
    status.agent.id = status.agent.name = id;
    await recordAgent(db, status, tokenOf(id), 0);
  }
}

/** Makes a file with a schema and agents, which every run copies. */
export async function makeStart(folder: string): Promise<string> {
  const client = await openIn(folder);
  await recordAgents(database(client));
  await client.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  client.close();
  return join(folder, "airlock.db");
}

const maxQueueSize = 3;
export const leaseTtlMs = 30_000;
const agentIds = ["agent 0", "agent 1", "agent 2"];

/**
 * One step. A number that picks something counts from the latest one and wraps around.
 */
export type Step =
  | { do: "nothing" }
  | { do: "submit"; mode: "sync" | "async"; key: string | undefined; payload: string }
  | { do: "claim"; agent: number; count: number; replyLost: boolean }
  | { do: "redeliver"; agent: number; count: number; replyLost: boolean }
  | { do: "renew"; agent: number; alsoLease: number }
  | { do: "post"; what: Post; lease: number; body: number; byAnother: boolean }
  | { do: "cancel"; execution: number }
  | { do: "wait"; ms: number }
  | { do: "expire"; afterMs: number }
  | { do: "restart" }
  | { do: "cut power"; during: Step; writtenOfTen: number; garbage: boolean };

type StepOf<D extends Step["do"]> = Extract<Step, { do: D }>;

type Post = "start" | "log" | "upload" | "result" | "release";

const releaseError = { type: "docker_error", message: "gone", phase: "startup" } as const;

/** Posts for a lease, like an agent's. Each number gives a different body. */
async function sendPost(
  deps: Deps,
  leaseId: string,
  tokenHash: string,
  { what, body }: { what: Post; body: number },
): Promise<void> {
  const execution = await requireLease(deps, leaseId, tokenHash);
  switch (what) {
    case "start":
      return recordStart(deps, execution, { job_ref: `ref ${body}` });
    case "log":
      return recordLog(deps, execution, {
        parts: [{ stream: "stdout", offset: 0, data_base64: btoa(logText(body)) }],
      });
    case "upload": {
      const bytes = new TextEncoder().encode(`file ${body}`);
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      const stream = new Blob([bytes]).stream();
      return storeUpload(deps, execution, artifactName, stream, {
        sizeBytes: bytes.length,
        sha256,
      });
    }
    case "result":
      await recordResult(deps, execution, leaseId, {
        ...success,
        ...outcomes[body]!,
        stdout_base64: btoa(resultText(body)),
      });
      return;
    case "release":
      return releaseLease(deps, leaseId, { error: releaseError });
  }
}

const kind = <K extends Step["do"]>(name: K) => ({ do: fc.constant(name) });
const oneIn = (n: number) => fc.integer({ min: 1, max: n }).map((drawn) => drawn === n);
const agent = fc.nat({ max: 2 });
const count = fc.integer({ min: 1, max: 3 });
const pick = fc.nat({ max: 5 });

const nothing = fc.record(kind("nothing"));
const submit = fc.record({
  ...kind("submit"),
  mode: fc.constantFrom("async" as const, "async" as const, "sync" as const),
  key: fc.constantFrom("key 0", "key 1", "key 2", ...Array.from({ length: 7 }, () => undefined)),
  payload: fc.constantFrom("payload 0", "payload 1"),
});
const claim = fc.record({ ...kind("claim"), agent, count, replyLost: oneIn(3) });
const redeliver = fc.record({ ...kind("redeliver"), agent, count, replyLost: oneIn(3) });
const renew = fc.record({ ...kind("renew"), agent, alsoLease: pick });
const post = fc.record({
  ...kind("post"),
  what: fc.constantFrom("start", "log", "upload", "result", "release"),
  lease: pick,
  body: fc.nat({ max: 3 }),
  byAnother: oneIn(8),
});
const cancelOne = fc.record({ ...kind("cancel"), execution: pick });
const wait = fc.record({ ...kind("wait"), ms: fc.constantFrom(1, 500, 1000, leaseTtlMs - 1) });
const expire = fc.record({ ...kind("expire"), afterMs: fc.constantFrom(0, leaseTtlMs) });
const restart = fc.record(kind("restart"));
const writes = fc.oneof(submit, claim, post, cancelOne, expire);
const cutPower = fc.record({
  ...kind("cut power"),
  during: writes,
  writtenOfTen: fc.nat({ max: 10 }),
  garbage: fc.boolean(),
});

/** Shrinks towards steps that do nothing, so that a failing run keeps only the steps that it needs to fail. */
export const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { withCrossShrink: true },
  { weight: 1, arbitrary: nothing },
  { weight: 8, arbitrary: submit },
  { weight: 7, arbitrary: claim },
  { weight: 3, arbitrary: redeliver },
  { weight: 2, arbitrary: renew },
  { weight: 12, arbitrary: post },
  { weight: 2, arbitrary: cancelOne },
  { weight: 4, arbitrary: wait },
  { weight: 4, arbitrary: expire },
  { weight: 1, arbitrary: restart },
  { weight: 2, arbitrary: cutPower },
);
