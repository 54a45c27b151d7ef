import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { expect } from "vitest";
import { claimCalls } from "../agents/claim.ts";
import { advance, expireLeases } from "../jobs/lease.ts";
import {
  callLostMessage,
  type ExecutionEvent,
  type LeaseState,
  transition,
} from "../jobs/rules.ts";
import { submitExecution } from "../jobs/submit.ts";
import { claimSessions, dueSessions } from "../sessions/lease.ts";
import {
  advanceSession,
  createSession,
  isOfSandbox,
  type SessionEvent,
  type SessionState,
  sessionTransition,
} from "../sessions/sql.ts";
import { database, type Database } from "../store/database.ts";
import { executions, sessions } from "../store/schema.ts";
import { readyReport } from "./scripted-agent.ts";
import { newSession, stateOfNew, terms } from "./session-store.ts";
import { miscounted, queued } from "./store-model.ts";
import { newExecution, offers, openIn } from "./temp-store.ts";

const mostSessions = 3;
const mostCalls = 3;
const ttlMs = 100;
const error = { type: "docker_error", message: "gone", phase: "startup" } as const;

/** One step; `pick` counts from the latest session and wraps around. */
export type SessionStep =
  | { do: "create" }
  | { do: "claim" | "claim calls"; agent: "a" | "b" }
  | { do: "ready" | "release" | "end" | "leave" | "crash" | "delete"; pick: number }
  | { do: "call" | "finish call" | "release call" | "cancel call"; pick: number }
  | { do: "pass"; ms: number };

interface KnownCall {
  id: string;
  call: number;
  state: LeaseState;
}
interface KnownSession {
  id: string;
  state: SessionState;
  calls: KnownCall[];
}

const isOpen = ({ state }: KnownCall): boolean => state.endedAt === null;

/** Sessions and calls in a store, and what the two state machines say about them. */
export class SessionWorld {
  now = 1000;
  readonly #folder: string;
  readonly #db: Database;
  readonly #known: KnownSession[] = [];

  private constructor(folder: string, db: Database) {
    this.#folder = folder;
    this.#db = db;
  }

  /** Starts from a copy of a file that `makeStart` made. */
  static async open(startFile: string): Promise<SessionWorld> {
    const folder = mkdtempSync(join(tmpdir(), "airlock-sessions-"));
    copyFileSync(startFile, join(folder, "airlock.db"));
    return new SessionWorld(folder, database(await openIn(folder)));
  }

  /** The same over a libSQL server that has the agents and nothing else. */
  static async over(url: string): Promise<SessionWorld> {
    const folder = mkdtempSync(join(tmpdir(), "airlock-sessions-"));
    return new SessionWorld(folder, database(await openIn(folder, url)));
  }

  close(): void {
    this.#db.client.close();
    rmSync(this.#folder, { recursive: true });
  }

  /** Takes a step, compares the store with the model, and returns the outcome. */
  async run(step: SessionStep): Promise<string> {
    const outcome = await this.#take(step);
    const [rows, calls] = await Promise.all([
      this.#db.orm.select().from(sessions).orderBy(sessions.seq),
      this.#db.orm.select().from(executions).orderBy(executions.seq),
    ]);
    expect(rows.map(({ id }) => id)).toEqual(this.#known.map(({ id }) => id));
    for (const [n, { id, state, calls: known }] of this.#known.entries()) {
      expect(rows[n]).toMatchObject({ ...state, calls: known.length });
      const its = calls.filter(({ sessionId }) => sessionId === id);
      expect(its).toMatchObject(known.map(({ state, ...call }) => ({ ...call, ...state })));
      expect(its.filter(({ status }) => status === "running").length).toBeLessThan(2);
    }
    expect((await this.#db.client.execute(miscounted)).rows).toEqual([]);
    return outcome;
  }

  async #take(step: SessionStep): Promise<string> {
    if ("pick" in step) return this.#change(step);
    switch (step.do) {
      case "create":
        return this.#create();
      case "claim":
        return this.#claim(step.agent);
      case "claim calls":
        return this.#claimCalls(step.agent);
      case "pass":
        return this.#pass(step.ms);
    }
  }

  async #create(): Promise<string> {
    const { now } = this;
    const open = this.#known.filter(({ state }) => state.status !== "ended");
    const state = stateOfNew(now + 5 * ttlMs, 0.05);
    const { expiresAt, idleTimeoutS } = state;
    const session = newSession({ createdAt: now, expiresAt, idleTimeoutS });
    const { kind } = await createSession(this.#db, session, mostSessions);
    expect(kind).toBe(open.length < mostSessions ? "created" : "full");
    if (kind === "created") this.#known.push({ id: session.id, state, calls: [] });
    return kind;
  }

  async #claim(agentId: string): Promise<string> {
    const lease = terms(this.now, agentId, ttlMs);
    const next = this.#known.find(
      ({ state }) => state.status === "queued" && state.expiresAt > this.now,
    );
    const [claimed] = await claimSessions(this.#db, lease, 1, offers);
    expect(claimed?.id).toBe(next?.id);
    if (!next) return "no session";
    Object.assign(next.state, {
      status: "starting",
      attempt: next.state.attempt + 1,
      leaseId: claimed!.leaseId,
      agentId,
      leaseExpiresAt: lease.expiresAt,
      startedAt: this.now,
    });
    return next.state.attempt > 1 ? "claim again" : "claim";
  }

  async #claimCalls(agentId: string): Promise<string> {
    const lease = terms(this.now, agentId, ttlMs);
    const due = this.#known.flatMap(({ state, calls }) => {
      const holds = state.agentId === agentId && (state.leaseExpiresAt ?? 0) > this.now;
      const isFree = !calls.some(({ state }) => state.status === "running");
      const serves = state.status === "ready" && holds && state.expiresAt > this.now && isFree;
      return (serves && calls.find(({ state }) => state.status === "queued")) || [];
    });
    const claimed = await claimCalls(this.#db, lease);
    expect(claimed.map(({ id }) => id).toSorted()).toEqual(due.map(({ id }) => id).toSorted());
    for (const call of due) {
      const leaseId = claimed.find(({ id }) => id === call.id)!.leaseId!;
      this.#apply(call, { kind: "claim", leaseId, agentId, expiresAt: lease.expiresAt });
    }
    return due.length > 0 ? "claim calls" : "no call";
  }

  async #pass(ms: number): Promise<string> {
    this.now += ms;
    const outcomes: string[] = [];
    for (const { id } of await dueSessions(this.#db, { now: this.now })) {
      for (const kind of ["expire", "lifetime", "idle"] as const) {
        const known = this.#known.find((one) => one.id === id)!;
        outcomes.push(await this.#send(known, { kind }));
      }
    }
    const due = this.#known
      .flatMap(({ calls }) => calls)
      .filter((call) => this.#apply(call, { kind: "expire" }));
    const expired = await expireLeases(this.#db, this.now);
    expect(expired.map(({ id }) => id).toSorted()).toEqual(due.map(({ id }) => id).toSorted());
    return [...outcomes.filter((one) => one !== "refused"), "pass"][0]!;
  }

  async #change(step: Extract<SessionStep, { pick: number }>): Promise<string> {
    const known = this.#known.at(-1 - (step.pick % (this.#known.length || 1)));
    if (!known) return "no session yet";
    const leaseId = known.state.leaseId ?? "none";
    switch (step.do) {
      case "ready":
        return this.#send(known, { kind: "ready", leaseId, report: readyReport });
      case "release":
        return this.#send(known, { kind: "release", leaseId, error });
      case "end":
        return this.#send(known, { kind: "end", leaseId, reason: "engine_lost", error });
      case "leave":
      case "crash":
        return this.#send(known, { kind: step.do, leaseId });
      case "delete":
        return this.#send(known, { kind: "delete" });
      case "call":
        return this.#call(known);
      case "finish call":
      case "release call":
      case "cancel call":
        return this.#changeCall(known, step.do);
    }
  }

  async #call({ id, state, calls }: KnownSession): Promise<string> {
    const { now } = this;
    const times = { createdAt: now, availableAt: now };
    const of = { sessionId: id, context: "default", maxAttempts: 1 };
    const execution = newExecution({ ...of, ...times });
    const { kind } = await submitExecution(this.#db, execution, mostCalls);
    const waiting = calls.filter((call) => call.state.status === "queued").length;
    expect(kind).toBe(state.status !== "ended" && waiting < mostCalls ? "accepted" : "full");
    if (kind !== "accepted") return "call refused";
    const first = { ...queued, maxAttempts: 1, sessionId: id, availableAt: now };
    calls.push({ id: execution.id, call: calls.length + 1, state: first });
    return "call";
  }

  async #changeCall(
    { state, calls }: KnownSession,
    what: "finish call" | "release call" | "cancel call",
  ): Promise<string> {
    const call = calls.find(isOpen);
    if (!call) return "no open call";
    const leaseId = call.state.leaseId ?? "none";
    const events = {
      "finish call": { kind: "complete", leaseId, status: "succeeded", error: null, exitCode: 0 },
      "release call": { kind: "release", leaseId, error, retryAt: this.now },
      "cancel call": { kind: "cancel" },
    } as const;
    const event = events[what];
    const changed = await advance(this.#db, { id: call.id }, event, this.now);
    expect(changed.kind).toBe(this.#apply(call, event) ? "changed" : "refused");
    const late = state.status === "ended" && changed.kind === "changed" ? ", late" : "";
    return `${what} ${changed.kind}${late}`;
  }

  /** Applies an event to a session in the store and in the model. */
  async #send(known: KnownSession, event: SessionEvent): Promise<string> {
    const isBusy = event.kind === "idle" && known.calls.some(isOpen);
    const expected = isBusy
      ? ({ ok: false, refusal: "not_due" } as const)
      : sessionTransition(known.state, event, this.now);
    const result = await advanceSession(this.#db, { id: known.id }, event, this.now);
    expect(result.kind).toBe(expected.ok ? "changed" : "refused");
    if (!expected.ok) return "refused";
    Object.assign(known.state, expected.change);
    if (known.state.status === "ended") this.#endCalls(known);
    return `${event.kind}: ${known.state.reason ?? known.state.status}`;
  }

  #endCalls(known: KnownSession): void {
    const { reason } = known.state;
    for (const call of known.calls.filter(isOpen)) {
      if (call.state.status === "running" && isOfSandbox(reason)) continue;
      if (call.state.status === "running" && reason !== "agent_lost") {
        call.state.cancelRequested = true;
        continue;
      }
      const isLost = call.state.status === "running";
      this.#end(call, {
        status: isLost ? "failed" : "cancelled",
        leaseExpiresAt: null,
        error: isLost
          ? { type: "internal_error", message: callLostMessage, phase: "startup" }
          : { type: "cancelled", message: `The session ended: ${reason}.`, phase: "startup" },
      });
    }
  }

  #apply(call: KnownCall, event: ExecutionEvent): boolean {
    const result = transition(call.state, event, this.now);
    if (!result.ok) return false;
    if (result.change.endedAt) this.#end(call, result.change);
    else Object.assign(call.state, result.change);
    return true;
  }

  /** The end of a call is the last use of its session. */
  #end(call: KnownCall, change: Partial<LeaseState>): void {
    Object.assign(call.state, change, { endedAt: this.now });
    this.#known.find(({ id }) => id === call.state.sessionId)!.state.usedAt = this.now;
  }
}

const kind = <K extends SessionStep["do"]>(...names: K[]) => ({ do: fc.constantFrom(...names) });
const agent = fc.constantFrom("a" as const, "b" as const);
const pick = fc.nat({ max: 3 });

/** Mostly steps on the way to a session that serves calls. */
export const anySessionStep: fc.Arbitrary<SessionStep> = fc.oneof(
  { weight: 5, arbitrary: fc.record(kind("create")) },
  { weight: 6, arbitrary: fc.record({ ...kind("claim"), agent }) },
  { weight: 8, arbitrary: fc.record({ ...kind("ready"), pick }) },
  { weight: 8, arbitrary: fc.record({ ...kind("call"), pick }) },
  { weight: 8, arbitrary: fc.record({ ...kind("claim calls"), agent }) },
  { weight: 5, arbitrary: fc.record({ ...kind("finish call"), pick }) },
  { weight: 6, arbitrary: fc.record({ ...kind("release call", "cancel call"), pick }) },
  {
    weight: 3,
    arbitrary: fc.record({ ...kind("release", "end", "leave", "crash", "delete"), pick }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ ...kind("pass"), ms: fc.constantFrom(1, 60, ttlMs, 2 * ttlMs) }),
  },
);
