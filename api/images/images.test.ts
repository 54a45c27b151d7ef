import { createHash } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { type Config } from "../../shared/config/config.ts";
import type { ExecutionRecord, SyncResult } from "../../shared/wire/executions.ts";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";
import type { LeasedBuild, PollRequest } from "../../shared/wire/leases.ts";
import type { Session } from "../../shared/wire/sessions.ts";
import type { SubmittedJob } from "../../shared/wire/submissions.ts";
import { recordAgent } from "../agents/agents.ts";
import { findAgent } from "../agents/fleet.ts";
import { type Deps } from "../deps.ts";
import { buildSpec, environment } from "../jobs/environment.ts";
import type { LeaseTerms } from "../jobs/lease.ts";
import { type Database } from "../store/database.ts";
import { queuedSessions } from "../sessions/sql.ts";
import { sweep } from "../sweep.ts";
import { readyReport, ScriptedAgent } from "../testing/scripted-agent.ts";
import { by, openTempStore, testDeps } from "../testing/temp-store.ts";
import { startProcess, store, useStore } from "../testing/use-store.ts";
import {
  archiveKey,
  imageSource,
  recordBuildResult,
  serveAwaited,
  storedArchive,
  storeImageUpload,
} from "./builds.ts";
import {
  advanceBuild,
  type BuildEvent,
  type BuildState,
  buildTransition,
  builtImages,
  claimBuilds,
  expireBuilds,
  findBuildById,
  finishBuild,
  type NewBuild,
  openBuilds,
  readBuildLog,
  recordBuildLog,
  renewBuilds,
  requestBuild,
  undeliveredBuilds,
} from "./sql.ts";

describe("build transition", () => {
  const now = 1000;
  const error = { type: "docker_error", message: "gone", phase: "startup" } as const;
  const lease = { leaseId: "lease", agentId: "agent", startedAt: 500 };

  const fresh: BuildState = {
    status: "queued",
    attempt: 0,
    leaseId: null,
    agentId: null,
    leaseExpiresAt: null,
    startedAt: null,
    endedAt: null,
    digest: null,
    pythonVersion: null,
    archiveSha256: null,
    archiveBytes: null,
    manifestDigest: null,
    error: null,
  };

  const held = { ...fresh, ...lease, status: "running", attempt: 1 } as const;
  const states: Record<string, BuildState> = {
    queued: fresh,
    running: { ...held, leaseExpiresAt: now + 1 },
    "running, last attempt": { ...held, attempt: 2, leaseExpiresAt: now + 1 },
    expired: { ...held, leaseExpiresAt: now },
    "expired, last attempt": { ...held, attempt: 2, leaseExpiresAt: now },
    built: { ...held, status: "built", endedAt: 900, digest: "d" },
    failed: { ...held, status: "failed", endedAt: 900, error },
  };

  const success = {
    status: "built",
    digest: "sha256:1",
    python_version: "3.13.5",
    manifest_digest: null,
  } as const;

  const events: Record<string, BuildEvent> = {
    success: { kind: "finish", leaseId: "lease", report: success },
    failure: { kind: "finish", leaseId: "lease", report: { status: "failed", error } },
    release: { kind: "release", leaseId: "lease", error },
    expire: { kind: "expire" },
    withdraw: { kind: "withdraw", error },
    "success of another lease": { kind: "finish", leaseId: "other", report: success },
    "release of another lease": { kind: "release", leaseId: "other", error },
  };

  const built = {
    status: "built",
    digest: "sha256:1",
    manifestDigest: null,
    pythonVersion: "3.13.5",
    endedAt: now,
    leaseExpiresAt: null,
  };
  /** An attempt that did not end well leaves no stored image. */
  const noArchive = { archiveSha256: null, archiveBytes: null };
  const failed = { status: "failed", error, endedAt: now, leaseExpiresAt: null, ...noArchive };
  const queued = {
    ...noArchive,
    status: "queued",
    leaseId: null,
    agentId: null,
    leaseExpiresAt: null,
    startedAt: null,
  };
  const lostTwice = {
    ...failed,
    error: {
      type: "internal_error",
      message: expect.stringContaining("2 times. Its own log may say why") as string,
      phase: "startup",
    },
  };

  const running = { success: built, failure: failed, release: queued };
  /** What each event does in each state: the columns that change. The others are refused. */
  const table: Record<string, Record<string, object>> = {
    queued: { withdraw: failed },
    running,
    "running, last attempt": { ...running, release: failed },
    expired: { expire: queued },
    "expired, last attempt": { expire: lostTwice },
  };

  function refusal({ status }: BuildState, { kind }: BuildEvent): string {
    if (status === "built" || status === "failed") return "finished";
    return { expire: "not_due", withdraw: "not_queued" }[kind as string] ?? "lease_lost";
  }

  describe.each(Object.entries(states))("a build that is %s", (state, build) => {
    test.each(Object.entries(events))("on %s", (name, event) => {
      const change = table[state]?.[name];
      expect(buildTransition(build, event, now)).toEqual(
        change ? { ok: true, change } : { ok: false, refusal: refusal(build, event) },
      );
    });
  });
});

/** What an agent reports of an image that it has built. */
const builtReport = (digest: string) =>
  ({ status: "built", digest, python_version: "3.13.5", manifest_digest: null }) as const;

const science = { jobType: "science", spec: "{}" };
const other = { jobType: "other", spec: "{}" };
let made = 0;
function newBuild(changes: Partial<NewBuild> = {}): NewBuild {
  return {
    id: String(++made),
    ...science,
    tag: "latest",
    imageRef: "airlock-science:latest",
    correlationId: "c",
    createdAt: 0,
    ...changes,
  };
}

/** Requests a build and leases it. */
async function leaseBuild(db: Database, terms: LeaseTerms, changes: Partial<NewBuild> = {}) {
  const asked = newBuild(changes);
  await requestBuild(db, asked, by());
  const [build] = await claimBuilds(db, terms, 1, [asked]);
  return build!;
}

describe("builds", () => {
  useStore();
  let db: Database;
  beforeEach(() => {
    ({ db } = store);
  });

  const digest = `sha256:${"1".repeat(64)}`;
  const built = builtReport(digest);
  const terms = { agentId: "agent", expiresAt: 200, now: 100 };

  /** Leases the build of a request, and returns its lease. */
  const leased = async (changes: Partial<NewBuild> = {}): Promise<string> =>
    (await leaseBuild(db, terms, changes)).leaseId!;

  describe("equal requests", () => {
    test("share one build, even if many come at once and none is open", async () => {
      const asked = Array.from({ length: 20 }, () => requestBuild(db, newBuild(), by()));
      expect(new Set(await Promise.all(asked)).size).toBe(1);
      expect(await openBuilds(db)).toHaveLength(1);
    });

    test("that look before another build has ended make no second one", async () => {
      const lease = await leased();
      const [before] = await openBuilds(db);
      await finishBuild(db, lease, built, "hash", 150);
      await requestBuild(db, newBuild(), by(), before!.seq - 1);
      expect(await openBuilds(db)).toEqual([]);
      await requestBuild(db, newBuild(), by(), before!.seq);
      expect(await openBuilds(db)).toHaveLength(1);
    });

    test("are those of the same job type, tag and specification", async () => {
      const id = await requestBuild(db, newBuild(), by());
      for (const other of [{ jobType: "other" }, { tag: "v1.0.0" }, { spec: "{1}" }]) {
        expect(await requestBuild(db, newBuild(other), by())).not.toBe(id);
      }
    });
  });

  describe("a claim", () => {
    test("gives each build to one agent, oldest first", async () => {
      const tags = ["v1.0.0", "v2.0.0", "v3.0.0"];
      for (const tag of tags) await requestBuild(db, newBuild({ tag }), by());
      const claims = await Promise.all(
        Array.from({ length: 9 }, () => claimBuilds(db, terms, 1, [science])),
      );
      expect(claims.flat().map(({ tag }) => tag)).toEqual(tags);
      expect(new Set(claims.flat().map(({ leaseId }) => leaseId)).size).toBe(3);
    });

    test("takes the oldest of each job type first: many versions of one keep no other waiting", async () => {
      for (const tag of ["v1.0.0", "v2.0.0", "v3.0.0"])
        await requestBuild(db, newBuild({ tag }), by());
      await requestBuild(db, newBuild({ jobType: "other" }), by());
      const [first] = await claimBuilds(db, terms, 1, [science, other]);
      const [second] = await claimBuilds(db, terms, 1, [science, other]);
      expect([first?.tag, second?.jobType]).toEqual(["v1.0.0", "other"]);
    });
  });

  describe("a lease", () => {
    test("is renewed while it holds, and only by its agent", async () => {
      const lease = await leased();
      const later = { ...terms, expiresAt: 300 };
      expect(await renewBuilds(db, { ...later, agentId: "other" }, [lease])).toEqual([]);
      expect(await renewBuilds(db, later, [lease])).toEqual([lease]);
      expect(await renewBuilds(db, { ...later, now: 300 }, [lease])).toEqual([]);
    });

    test("that its agent does not know is delivered again, only to that agent", async () => {
      const lease = await leased();
      expect(await undeliveredBuilds(db, { ...terms, agentId: "other" }, [])).toEqual([]);
      expect(await undeliveredBuilds(db, terms, [lease])).toEqual([]);
      expect(await undeliveredBuilds(db, terms, [])).toMatchObject([{ leaseId: lease }]);
    });

    test("notes the step with a piece of the log, or without one, accepts neither once it has ended, and the next lease begins anew", async () => {
      const lease = await leased();
      const stepOf = async () => (await openBuilds(db))[0]?.step;
      const [build] = await openBuilds(db);
      const chunk = { buildId: build?.id ?? "", leaseId: lease, offset: 0 };
      const [some, none] = [new Uint8Array([1]), new Uint8Array()];
      expect(await recordBuildLog(db, { ...chunk, data: some }, 150, 1)).toBe("recorded");
      expect(await stepOf()).toBe(1);
      expect(await recordBuildLog(db, { ...chunk, offset: 1, data: none }, 150, 2)).toBe(
        "recorded",
      );
      expect(await recordBuildLog(db, { ...chunk, offset: 1, data: some }, 150)).toBe("recorded");
      expect(await stepOf()).toBe(2);
      expect(await readBuildLog(db, build!)).toEqual(new Uint8Array([1, 1]));
      for (const [data, step] of [
        [none, 3],
        [some, undefined],
      ] as const)
        expect(await recordBuildLog(db, { ...chunk, offset: 2, data }, 200, step)).toBe(
          "lease_lost",
        );
      await expireBuilds(db, 200);
      await claimBuilds(db, { ...terms, now: 200, expiresAt: 300 }, 1, [science]);
      expect(await stepOf()).toBeNull();
    });
  });

  test("for each specification, the last built image is used", async () => {
    const finish = async (changes: Partial<NewBuild>, n: number) => {
      const image = { ...built, digest: `sha256:${String(n).repeat(64)}` };
      await finishBuild(db, await leased(changes), image, "hash", 150);
    };
    await finish({ tag: "v1.0.0" }, 1);
    await finish({ tag: "latest" }, 2);
    await finish({ spec: "{1}" }, 3);
    await finish({ jobType: "other" }, 4);
    const failed = { status: "failed", error: { type: "unknown", message: "", phase: "startup" } };
    await finishBuild(db, await leased(), failed as never, "hash", 150);
    const found = (await builtImages(db)).map(
      ({ jobType, spec, digest: image }) => `${jobType} ${spec} ${image[7]}`,
    );
    expect(found.sort()).toEqual(["other {} 4", "science {1} 3", "science {} 2"]);
  });

  test.each([
    ["running without a lease", "status = 'running'"],
    ["a lease without its agent", "status = 'running', lease_expires_at = 1, lease_id = 'x'"],
    ["built without a digest", "status = 'built', ended_at = 1"],
    ["built without an end", "status = 'built', digest = 'd', python_version = '3'"],
    ["failed without an error", "status = 'failed', ended_at = 1"],
    ["an unknown state", "status = 'lost'"],
  ])("the store refuses a build that is %s", async (_what, change) => {
    const id = await requestBuild(db, newBuild(), by());
    await expect(db.client.execute(`UPDATE builds SET ${change}`)).rejects.toThrow(
      "CHECK constraint",
    );
    expect(await findBuildById(db, id)).toMatchObject({ status: "queued" });
  });

  test("the loser of a race on a build is refused", async () => {
    const lease = await leased();
    const events = ["one", "two"].map((hash) => finishBuild(db, lease, built, hash, 150));
    const kinds = (await Promise.all(events)).map(({ kind }) => kind);
    expect(kinds.sort()).toEqual(["changed", "refused"]);
    const none = await advanceBuild(db, { leaseId: "none" }, { kind: "expire" }, 150);
    expect(none.kind).toBe("not_found");
  });
});

describe("images", () => {
  const hourMs = 3_600_000;
  const dayMs = 24 * hourMs;

  useStore();
  let clock: number;
  let deps: Deps;
  beforeEach(() => {
    clock = 100 * dayMs;
    deps = testDeps(store.db, store.folder, () => clock, {
      job_types: { science: JobTypeDefinition.parse({}) },
    });
  });

  /** Builds the job type, and gives the place of its image's archive. */
  async function build(n: number): Promise<string> {
    const { jobType } = environment(deps.config, [], "science")!;
    const terms = { agentId: "a", expiresAt: clock + 1000, now: clock };
    const row = await leaseBuild(deps.db, terms, { spec: buildSpec(jobType) });
    const { leaseId } = row;
    const text = `archive ${n}`;
    const announced = {
      sizeBytes: text.length,
      sha256: createHash("sha256").update(text).digest("hex"),
    };
    await storeImageUpload(deps, row, leaseId!, new Blob([text]).stream(), announced);
    const digest = `sha256:${String(n).padStart(64, "0")}`;
    await finishBuild(deps.db, leaseId!, builtReport(digest), "hash", clock);
    return join(store.folder, "artifacts", archiveKey({ id: row.id, leaseId }, announced.sha256));
  }

  test("the archive of a job type's last build stays; the one before is removed an hour later", async () => {
    const first = await build(1);
    clock += 30 * dayMs;
    await sweep(deps);
    expect(existsSync(first)).toBe(true);
    const second = await build(2);
    await sweep(deps);
    clock += hourMs - 1;
    await sweep(deps);
    expect(existsSync(first)).toBe(true);
    clock += 1;
    await sweep(deps);
    expect([first, second].map((path) => existsSync(path))).toEqual([false, true]);
  });

  test("an archive that the store has lost counts as none once it is asked for", async () => {
    const path = await build(1);
    const image = `sha256:${"1".padStart(64, "0")}`;
    const { open } = await storedArchive(deps, image);
    rmSync(path);
    await expect(open()).rejects.toThrow(`The archive of image ${image}`);
    await expect(imageSource(deps, image)).rejects.toThrow(`Image ${image}`);
  });

  test("an archive that no job type needs is removed after a day", async () => {
    const path = await build(1);
    deps = { ...deps, config: { ...deps.config, job_types: {} } };
    clock += dayMs - 1;
    await sweep(deps);
    clock += 2 * hourMs;
    expect(existsSync(path)).toBe(true);
    await sweep(deps);
    expect(existsSync(path)).toBe(true);
    clock += hourMs;
    await sweep(deps);
    expect(existsSync(path)).toBe(false);
  });
});

test("an agent has the image that it built once, however often it reports it", async () => {
  const store = await openTempStore();
  const deps = testDeps(store.db, store.folder, () => 10);
  const agent = new ScriptedAgent();
  await recordAgent(store.db, { ...agent.status(), images: ["earlier"] }, "token", 10);
  const terms = { agentId: agent.id, expiresAt: 1000, now: 10 };
  const { leaseId } = await leaseBuild(store.db, terms);
  const digest = `sha256:${"0".repeat(64)}`;
  const report = builtReport(digest);
  for (let n = 0; n < 2; n++) await recordBuildResult(deps, leaseId!, report);
  expect((await findAgent(store.db, agent.id))?.images).toEqual(["earlier", digest]);
  store.close();
});

describe("a job of a type that is not built", () => {
  useStore();
  const base = "python:3.13-slim";
  const image = `sha256:${"7".repeat(64)}`;
  const missing = {
    type: "dependency_error",
    message: "No such package.",
    phase: "startup",
  } as const;
  const why = {
    ...missing,
    message:
      "Job type science was not built: No such package. (log: GET /job-types/science/build; airlock build science builds again at once)",
  };
  let clock: number;
  let first: Process;

  beforeEach(async () => {
    clock = Date.parse("2026-01-01");
    first = await start();
    await first.poll();
  });

  type Process = Awaited<ReturnType<typeof start>>;

  /** An API process with an agent of its own on the one database. */
  async function start(config: Partial<Config> = {}, requirements = ["numpy==2.3.4"]) {
    const job_types = { science: JobTypeDefinition.parse({ requirements, npm: ["marked@15"] }) };
    const common = { job_types, max_queue_size: 1000, lease_ttl_s: 180 };
    const { deps, app, agent } = await startProcess(() => clock, { ...common, ...config });
    agent.maxSessions = 9;
    const send = async <T = Record<string, unknown>>(
      method: string,
      path: string,
      body?: object,
    ) => {
      const key = { "X-API-Key": "some-key" };
      const answer = await app.request(path, jsonRequest(method, body, key));
      return { http: answer.status, ...((await answer.json()) as T) };
    };
    const poll = (changes: Partial<PollRequest> = {}) =>
      agent.poll({ images: [base], free_builds: 1, ...changes });
    /** Polls until it gets the build. */
    const build = async (changes: Partial<PollRequest> = {}) => (await poll(changes)).builds[0]!;
    const end = (leaseId: string, report: object = builtReport(image)) =>
      agent.postBuild(leaseId, "result", report);
    const submit = async (more: object = {}) => {
      const body = { code: "1", job_type: "science", ...more };
      return send<SubmittedJob>("POST", "/execute/async", body);
    };
    const waits = async (id: string) =>
      (await send<{ message: string }>("GET", `/jobs/${id}/result`)).message;
    const error = async (id: string) =>
      (await send<ExecutionRecord>("GET", `/executions/${id}`)).error;
    return { deps, agent, send, poll, build, end, submit, waits, error };
  }

  const failure = { status: "failed", error: missing };
  const allBuilds = async () =>
    (await store.db.client.execute("SELECT status, correlation_id FROM builds")).rows;

  test.each<[string, (process: Process) => Promise<unknown>]>([
    [
      "a synchronous job",
      async ({ send }) => void send("POST", "/execute", { code: "1", job_type: "science" }),
    ],
    [
      "a batch",
      ({ send }) => send("POST", "/execute/batch", { jobs: [{ code: "1", job_type: "science" }] }),
    ],
    ["a session", ({ send }) => send("POST", "/sessions", { job_type: "science", wait: 0 })],
    [
      "a job whose time has come",
      async ({ submit }) => {
        await submit({ run_at: new Date(clock + 60_000).toISOString() });
        expect((await first.poll()).builds).toEqual([]);
        clock += 60_000;
      },
    ],
  ])("%s requests the build, too", async (_what, ask) => {
    await ask(first);
    // What does not wait for an answer takes a few turns.
    await expect
      .poll(async () => (await first.poll()).builds)
      .toMatchObject([{ job_type: "science" }]);
  });

  test("waits also if a client of another protocol sent it, or makes a session with it", async () => {
    const job_types = { default: JobTypeDefinition.parse({ requirements: ["numpy==2.3.4"] }) };
    const { send, poll, build, end, agent } = await start({ job_types, compat: ["dify", "e2b"] });
    await poll();
    const run = send("POST", "/compat/dify/v1/sandbox/run", { language: "python3", code: "1" });
    const sandbox = send("POST", "/compat/e2b/sandboxes", { templateID: "base" });
    let made: LeasedBuild | undefined;
    await expect.poll(async () => (made ??= await build())).toMatchObject({ job_type: "default" });
    await expect.poll(() => queuedSessions(store.db, "default")).toHaveLength(1);
    await end(made!.lease_id);
    const { jobs, sessions } = await poll({ images: [image] });
    await agent.postSession(sessions![0]!.lease_id, "ready", readyReport);
    await agent.result(jobs[0]!.lease_id);
    expect(await run).toMatchObject({ http: 200, code: 0 });
    expect(await sandbox).toMatchObject({ http: 201, templateID: "default" });
  });

  test("wakes the poll that requests and takes the build", async () => {
    const polled = first.agent.takeBuild({ images: [base], free_slots: 4 });
    await first.submit();
    expect(await polled).toMatchObject({ job_type: "science" });
  });

  test("requests one build, however many come at once at two processes", async () => {
    const second = await start();
    await second.poll();
    const processes = [first, second];
    await Promise.all(
      processes.flatMap(({ submit, poll }) =>
        Array.from({ length: 20 }, async (_, n) => {
          await submit({ code: String(n) });
          return poll({ free_builds: 0 });
        }),
      ),
    );
    const builds = (await Promise.all(processes.map(({ poll }) => poll()))).flatMap(
      (one) => one.builds,
    );
    expect(builds).toHaveLength(1);
    // The processes that looked before it was built know of it.
    await Promise.all(processes.map(({ poll }) => poll()));
    expect(await allBuilds()).toHaveLength(1);
  });

  test("a request that comes late makes no second build", async () => {
    await first.submit();
    const { lease_id } = await first.build();
    const unbuilt = [environment(first.deps.config, [], "science")!];
    await first.end(lease_id);
    expect(await serveAwaited(first.deps, unbuilt)).toBe(false);
    expect(await allBuilds()).toHaveLength(1);
  });

  test("goes on waiting for its build when a client's of another version fails, which lengthens no pause", async () => {
    const { job_id } = await first.submit();
    const { lease_id } = await first.build();
    const another = async (n: number) => {
      void first.send("POST", `/job-types/science/build?version_tag=v1.0.${n}`);
      let build: LeasedBuild | undefined;
      await expect
        .poll(async () => (build ??= (await first.poll({ builds: [lease_id] })).builds[0]))
        .toBeDefined();
      await first.end(build!.lease_id, failure);
    };
    for (const n of [1, 2, 3]) await another(n);
    expect(await first.error(job_id)).toBeNull();
    await first.end(lease_id, failure);
    expect(await first.error(job_id)).toEqual(why);
    for (const n of [4, 5]) await another(n);
    clock += 60_000;
    await first.poll();
    const { job_id: next } = await first.submit();
    expect(await first.build()).toMatchObject({ job_type: "science" });
    expect(await first.error(next)).toBeNull();
  });

  test("is not failed by a process whose old configuration failed, while another has its image", async () => {
    const next = await start({}, ["numpy==2.3.5"]);
    await next.poll();
    await first.submit();
    await first.end((await first.build()).lease_id, failure);
    const { job_id } = await next.submit();
    const { lease_id } = await next.build();
    await first.poll();
    expect(await next.error(job_id)).toBeNull();
    await next.end(lease_id);
    await first.poll();
    expect(await next.error(job_id)).toBeNull();
    expect((await next.poll({ images: [image] })).jobs).toMatchObject([{ execution_id: job_id }]);
  });

  test("fails with the build, with its error and the log's address, and so does a session", async () => {
    const { job_id, correlation_id } = await first.submit();
    const sync = first.send<SyncResult>("POST", "/execute", { code: "1", job_type: "science" });
    const { session_id } = await first.send<Session>("POST", "/sessions", {
      job_type: "science",
      wait: 0,
    });
    const call = await first.send<SubmittedJob>("POST", `/sessions/${session_id}/execute/async`, {
      code: "1",
    });
    const { job_id: later } = await first.submit({ run_at: new Date(clock + 5000).toISOString() });
    const { job_id: other } = await first.submit({ job_type: "default" });
    await expect
      .poll(() => first.send("GET", "/executions?limit=9"))
      .toMatchObject({ items: { length: 5 } });
    await first.end((await first.build({ free_slots: 0 })).lease_id, failure);
    const audit = await store.db.client.execute("SELECT * FROM audit");
    const asked = { key_name: "service", action: "build.request", correlation_id };
    expect(audit.rows).toMatchObject([asked]);
    expect(await first.error(job_id)).toEqual(why);
    expect(await sync).toMatchObject({ success: false, error: why });
    const ended = { status: "ended", reason: "start_failed", error: why };
    expect(await first.send("GET", `/sessions/${session_id}`)).toMatchObject(ended);
    expect(await first.error(call.job_id)).toMatchObject({ type: "cancelled" });
    for (const id of [later, other]) expect(await first.error(id)).toBeNull();
  });

  test("comes too early for the next build until a minute has passed, then two, at most an hour", async () => {
    const waits = [60, 120, 240, 480, 960, 1920, 3600, 3600];
    for (const seconds of waits) {
      await first.submit();
      await first.end((await first.build()).lease_id, failure);
      clock += seconds * 1000 - 1;
      const { job_id } = await first.submit();
      expect((await first.poll()).builds).toEqual([]);
      expect(await first.error(job_id)).toEqual(why);
      clock += 1;
    }
    await first.submit();
    expect(await first.build()).toBeDefined();
  });

  test("does not wait for that, nor for an open build, if the specification has changed", async () => {
    await first.submit();
    await first.end((await first.build()).lease_id, failure);
    const changed = await start({}, ["numpy==2.3.5"]);
    await changed.submit();
    await changed.build();
    const again = await start({}, ["numpy==2.3.6"]);
    await again.submit();
    expect(await again.build()).toMatchObject({ steps: [{ packages: ["numpy==2.3.6"] }, {}] });
  });

  test("waits for the image of a changed specification, while a leased job goes on", async () => {
    await first.submit();
    await first.end((await first.build()).lease_id);
    const [leased] = (await first.poll({ images: [base, image] })).jobs;
    const changed = await start({}, ["numpy==2.3.5"]);
    const { job_id } = await changed.submit();
    const both = { images: [base, image] };
    const { jobs, builds } = await changed.poll(both);
    expect(jobs).toEqual([]);
    expect(await changed.waits(job_id)).toBe("Waits for the image of science.");
    expect((await first.agent.result(leased!.lease_id)).status).toBe(200);
    const next = `sha256:${"8".repeat(64)}`;
    await changed.end(builds[0]!.lease_id, builtReport(next));
    expect((await changed.poll({ images: [next] })).jobs).toMatchObject([
      { execution_id: job_id, image: next },
    ]);
  });

  test("leaves a queued build to processes with its configuration, and ends it where none takes it for ten minutes", async () => {
    const client = first.send("POST", "/job-types/science/build");
    await expect.poll(() => openBuilds(first.deps.db)).toHaveLength(1);
    const changed = await start({}, ["numpy==2.3.5"]);
    expect((await changed.poll()).builds).toEqual([]);
    clock += 10 * 60_000 - 1;
    await sweep(changed.deps);
    expect(await first.build()).toMatchObject({ steps: [{ packages: ["numpy==2.3.4"] }, {}] });
    expect((await changed.poll()).builds).toEqual([]);
    await first.agent.leave();
    expect((await changed.poll()).builds).toEqual([]);
    clock += 1;
    await sweep(first.deps);
    expect(await allBuilds()).toMatchObject([{ status: "queued" }]);
    await sweep(changed.deps);
    expect(await client).toMatchObject({
      http: 503,
      detail: "The configuration of job type science has changed meanwhile.",
    });
    expect(await allBuilds()).toMatchObject([{ status: "failed" }]);
  });

  describe("or whose image is nowhere any more", () => {
    const gone = { images: [base] };
    const there = { images: [base, image] };
    /** Looks a time later, while the agents go on polling. Returns the builds that the agent gets. */
    const after = async (seconds: number, status = gone) => {
      clock += seconds * 1000;
      await first.poll({ ...status, free_slots: 0, free_builds: 0 });
      await sweep(first.deps);
      return (await first.poll({ ...status, free_slots: 0 })).builds;
    };
    beforeEach(async () => {
      await first.submit();
      await first.end((await first.build()).lease_id);
      const { jobs } = await first.poll(there);
      await first.agent.result(jobs[0]!.lease_id);
    });

    test("has it built again when it has been missed for a minute, and runs on the new one", async () => {
      expect(await after(0)).toEqual([]);
      const { job_id, message } = await first.submit();
      expect(message).toBe("Waits for the image of science.");
      const sync = first.send("POST", "/execute", { code: "1", job_type: "science" });
      await expect.poll(() => first.send("GET", "/executions")).toMatchObject({ count: 3 });
      expect(await after(59)).toEqual([]);
      const [build] = await after(1);
      expect(build).toMatchObject({ job_type: "science", fresh: true });
      const next = `sha256:${"8".repeat(64)}`;
      await first.end(build!.lease_id, builtReport(next));
      const { jobs } = await first.poll({ images: [next] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: next }, { image: next }]);
      await first.agent.result(jobs[1]!.lease_id);
      expect(await sync).toMatchObject({ success: true });
    });

    test("fails with the build, and has the next one made a minute later", async () => {
      await after(0);
      const { job_id } = await first.submit();
      const [build] = await after(60);
      await first.end(build!.lease_id, failure);
      expect(await after(1)).toEqual([]);
      expect(await first.error(job_id)).toEqual(why);
      const { job_id: early } = await first.submit();
      expect(await after(58)).toEqual([]);
      expect(await first.error(early)).toEqual(why);
      const { job_id: late } = await first.submit();
      expect(await after(1)).toMatchObject([{ job_type: "science" }]);
      expect(await first.error(late)).toBeNull();
    });

    test.each<[string, () => Promise<unknown>]>([
      ["an agent that has it starts again", () => after(30, there)],
      [
        "no agent that would build it is there",
        async () => {
          await first.agent.leave();
          await sweep(first.deps);
          first = await start();
        },
      ],
    ])("begins the minute anew if %s, and waits for a job", async (_what, meanwhile) => {
      expect(await after(0)).toEqual([]);
      expect(await after(100)).toEqual([]);
      await first.submit();
      await meanwhile();
      expect(await after(1)).toEqual([]);
      expect(await after(59)).toEqual([]);
      expect(await after(1)).toMatchObject([{ job_type: "science" }]);
    });

    test("is told how to have it built if nobody does that by itself", async () => {
      const { submit } = await start({ auto_build: false });
      await first.poll(gone);
      const { message } = await submit();
      expect(message).toMatch("build it again: POST /job-types/science/build.");
      await after(0);
      expect(await after(60)).toMatchObject([{ job_type: "science" }]);
    });
  });

  test("runs on the present image while a rebuild is open", async () => {
    await first.submit();
    await first.end((await first.build()).lease_id);
    const both = { images: [base, image] };
    await first.poll(both);
    void first.send("POST", "/job-types/science/build");
    await expect.poll(() => openBuilds(first.deps.db)).toHaveLength(1);
    const { job_id } = await first.submit();
    expect((await first.poll(both)).jobs).toMatchObject([{ execution_id: job_id, image }]);
  });

  test("is refused with auto_build = false, as in production mode", async () => {
    for (const config of [{ auto_build: false }, { production_mode: true }]) {
      const { submit, poll, send } = await start(config);
      const refused = await submit();
      expect(refused).toMatchObject({
        http: 400,
        errors: [{ path: "job_type", message: "must be built first" }],
      });
      expect(await send("POST", "/sessions", { job_type: "science", wait: 0 })).toMatchObject({
        http: 400,
      });
      expect((await poll()).builds).toEqual([]);
    }
    expect(await allBuilds()).toEqual([]);
  });

  test("waits and says so if nobody builds; a synchronous one is refused", async () => {
    const sync = () => first.send("POST", "/execute", { code: "1", job_type: "science" });
    await first.agent.leave();
    const { job_id, message } = await first.submit();
    expect(message).toMatch(/^Waits for the image of science\. No agent .* is connected/);
    expect(await sync()).toMatchObject({ http: 503 });
    const second = await start();
    const accepts = { ...second.agent.status().agent.accepts, builds: false };
    const unwilling = { agent: { ...second.agent.status().agent, accepts } };
    expect((await second.poll(unwilling)).builds).toEqual([]);
    const nobody =
      "No connected agent builds images of job type science: allow it on one (agent_builds, agent_job_types).";
    expect(await first.waits(job_id)).toBe(`Waits for the image of science. ${nobody}`);
    expect(await sync()).toMatchObject({ http: 503, detail: nobody });
    const third = await start();
    expect((await third.poll()).builds).toMatchObject([{ job_type: "science" }]);
    expect(await first.waits(job_id)).toBe("Waits for the image of science.");
  });

  test("can be cancelled while it waits; the build goes on", async () => {
    const { job_id } = await first.submit();
    const { lease_id } = await first.build();
    expect(await first.send("POST", `/jobs/${job_id}/cancel`)).toMatchObject({
      status: "cancelled",
    });
    expect((await first.poll({ builds: [lease_id] })).lost).toEqual([]);
    await first.end(lease_id, failure);
    expect(await first.error(job_id)).toMatchObject({ type: "cancelled" });
  });

  test("keeps its build if the API is started again", async () => {
    const { job_id } = await first.submit();
    const { lease_id } = await first.build();
    const second = await start();
    expect(await second.waits(job_id)).toBe("Waits for the image of science.");
    const { jobs } = await second.poll({ builds: [lease_id] });
    expect(jobs).toEqual([]);
    await second.end(lease_id);
    expect((await second.poll({ images: [image] })).jobs).toMatchObject([
      { execution_id: job_id, image },
    ]);
    expect(await allBuilds()).toHaveLength(1);
  });

  test("whose build loses its agent waits for the next one, and fails with the second", async () => {
    const { job_id } = await first.submit();
    await first.build();
    const second = await start();
    await second.poll();
    await second.agent.leave(true, first.agent.id);
    const { attempt } = await second.build();
    expect(attempt).toBe(2);
    expect(await first.waits(job_id)).toBe("Waits for the image of science.");
    clock += 181_000;
    await sweep((await start()).deps);
    expect(await first.error(job_id)).toMatchObject({
      message: expect.stringContaining(
        "The agent was lost while it built, 2 times. Its own log",
      ) as string,
    });
  });
});
