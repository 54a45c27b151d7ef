import { type Context, Hono } from "hono";
import type { z } from "zod";
import { JoinRequest, RotateRequest } from "../../shared/wire/access.ts";
import { OutputReport } from "../../shared/wire/executions.ts";
import {
  AgentStatus,
  AnswersQuery,
  BuildLogChunk,
  BuildReport,
  ItemsReport,
  LeaveRequest,
  PollRequest,
  ReleaseReport,
  type ResultReply,
  ResultReport,
  SessionEnded,
  SessionReady,
  StartedReport,
  takeHeader,
  type WatchReply,
} from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Deps } from "../deps.ts";
import { sendStored } from "../http/answer.ts";
import { holdBytes, invalid, parseBody, readUploadHeaders, unbounded } from "../http/body.ts";
import type { AppEnv } from "../http/context.ts";
import { checkProtocol, clientNetwork, joinedTokens, requireAgentToken } from "../http/identity.ts";
import { limitJoins } from "../http/rate-limit.ts";
import {
  appendBuildLog,
  imageSource,
  recordBuildResult,
  releaseBuildLease,
  requireBuildLease,
  storedArchive,
  storeImageUpload,
} from "../images/builds.ts";
import { waitForAnswers } from "../jobs/tool-calls.ts";
import { isFollowed } from "../jobs/wait.ts";
import {
  recordReady,
  recordSessionEnd,
  releaseSession,
  requireSessionLease,
} from "../sessions/lease.ts";
import { join, rotate } from "./agents.ts";
import { nextAfter } from "./claim.ts";
import { leave, poll, renew } from "./poll.ts";
import {
  leasedFile,
  recordLog,
  recordResult,
  recordShown,
  recordStart,
  releaseLease,
  requireLease,
  storeUpload,
} from "./posts.ts";

/** The agents' side of the API, `/agent/v1/*`: shared/wire/leases.ts has every message. */
export function agentRoutes(deps: Deps): Hono<AppEnv> {
  const { config } = deps;
  const smallBytes = 1024 * 1024;
  const joinBytes = 16 * 1024;
  /** JSON escapes some characters. */
  const itemsBytes = 2 * limits.resultItemsMaxBytes;
  /** Two streams in base64, items, and the output as JSON text with escaped quotes. */
  const resultBytes =
    smallBytes + 3 * config.max_stdout_bytes + 2 * limits.resultJsonMaxBytes + itemsBytes;
  const app = new Hono<AppEnv>();
  const requireJob = (c: Context<AppEnv, "/leases/:lease_id/*">) =>
    requireLease(deps, c.req.param("lease_id"), c.get("agentTokenHash"));
  /** A post for a lease. What holds the lease is looked up once the report has arrived. */
  const post = <T, L>(
    path: string,
    schema: z.ZodType<T>,
    find: (deps: Deps, leaseId: string, tokenHash: string) => Promise<L>,
    record: (held: L, report: T, leaseId: string) => Promise<object | void>,
    mostBytes = smallBytes,
  ): void => {
    app.post(path, async (c) => {
      const report = await parseBody(c, schema, mostBytes);
      const leaseId = c.req.param("lease_id") ?? "";
      const held = await find(deps, leaseId, c.get("agentTokenHash"));
      return c.json((await record(held, report, leaseId)) ?? {});
    });
  };

  // Must be first, so that every refusal has the protocol header: without it, agents assume a proxy's answer.
  app.use("*", checkProtocol());
  const agentOf = (c: Context<AppEnv>): string =>
    c.get("agentTokenHash") ?? clientNetwork(deps.clientAddress(c));
  app.use(
    "*",
    holdBytes(agentOf, { bodies: { each: resultBytes, all: 2 * resultBytes }, answers: unbounded }),
  );

  const tokens = joinedTokens(deps);
  app.post("/join", limitJoins(deps), async (c) => {
    const reply = await join(deps, await parseBody(c, JoinRequest, joinBytes));
    tokens.relist();
    return c.json(reply);
  });

  app.use("*", requireAgentToken(deps, tokens));

  app.post("/rotate", async (c) => {
    const { token_sha256 } = await parseBody(c, RotateRequest, smallBytes);
    await rotate(deps, c.get("agentTokenHash"), token_sha256);
    tokens.relist();
    return c.json({});
  });

  app.post("/poll", async (c) => {
    const request = await parseBody(c, PollRequest, smallBytes);
    const { signal } = c.req.raw;
    return c.json(await poll(deps, request, c.get("agentTokenHash"), signal));
  });

  app.post("/renew", async (c) => {
    const status = await parseBody(c, AgentStatus, smallBytes);
    return c.json(await renew(deps, status, c.get("agentTokenHash")));
  });

  app.post("/leave", async (c) => {
    const request = await parseBody(c, LeaveRequest, smallBytes);
    await leave(deps, request, c.get("agentTokenHash"));
    return c.json({});
  });

  type Held = ReturnType<typeof requireLease>;
  const recorded =
    <T>(record: (deps: Deps, held: Awaited<Held>, report: T) => Promise<void>) =>
    async (execution: Awaited<Held>, report: T): Promise<WatchReply> => {
      await record(deps, execution, report);
      return { watch: isFollowed(execution, deps.now()) };
    };
  post("/leases/:lease_id/started", StartedReport, requireLease, recorded(recordStart));
  post("/leases/:lease_id/logs", OutputReport, requireLease, recorded(recordLog), resultBytes);
  post("/leases/:lease_id/items", ItemsReport, requireLease, recorded(recordShown), itemsBytes);

  app.get("/leases/:lease_id/answers", async (c) => {
    const query = AnswersQuery.safeParse(c.req.query());
    if (!query.success) throw invalid("The query is not valid.", query.error);
    const { after, wait_s } = query.data;
    const execution = await requireJob(c);
    const { signal } = c.req.raw;
    return c.json(await waitForAnswers(deps, execution, after, wait_s * 1000, signal));
  });

  app.put("/leases/:lease_id/artifacts/:name{.+}", async (c) => {
    const execution = await requireJob(c);
    const announced = readUploadHeaders(c);
    const body = c.req.raw.body ?? new Blob([]).stream();
    await storeUpload(deps, execution, c.req.param("name"), body, announced);
    return c.json({});
  });

  app.get("/leases/:lease_id/files/:sha256", async (c) => {
    return sendStored(c, await leasedFile(deps, await requireJob(c), c.req.param("sha256")));
  });

  app.post("/leases/:lease_id/result", async (c) => {
    const report = await parseBody(c, ResultReport, resultBytes);
    const execution = await requireJob(c);
    const { signal } = c.req.raw;
    const takes = c.req.header(takeHeader) === "1" && !signal.aborted;
    const next = takes ? nextAfter(deps, execution, signal) : undefined;
    try {
      const queued = await recordResult(deps, execution, execution.leaseId, report, next?.claim);
      // A repeated post gets no job; a job that the first post leased comes with the next poll.
      const jobs = queued === undefined || !next ? [] : await next.jobs(queued);
      return c.json({ jobs } satisfies ResultReply);
    } finally {
      next?.close();
    }
  });

  post("/leases/:lease_id/release", ReleaseReport, requireLease, (_job, report, leaseId) =>
    releaseLease(deps, leaseId, report),
  );
  post("/sessions/:lease_id/ready", SessionReady, requireSessionLease, (session, report, leaseId) =>
    recordReady(deps, session, leaseId, report),
  );
  post("/sessions/:lease_id/ended", SessionEnded, requireSessionLease, (session, report, leaseId) =>
    recordSessionEnd(deps, session, leaseId, report),
  );
  post(
    "/sessions/:lease_id/release",
    ReleaseReport,
    requireSessionLease,
    (_held, report, leaseId) => releaseSession(deps, leaseId, report),
  );
  post("/builds/:lease_id/logs", BuildLogChunk, requireBuildLease, (build, chunk, leaseId) =>
    appendBuildLog(deps, build, leaseId, chunk),
  );
  post("/builds/:lease_id/result", BuildReport, requireBuildLease, (_build, report, leaseId) =>
    recordBuildResult(deps, leaseId, report),
  );
  post("/builds/:lease_id/release", ReleaseReport, requireBuildLease, (_build, report, leaseId) =>
    releaseBuildLease(deps, leaseId, report),
  );

  agentImageRoutes(app, deps);
  return app;
}

/** Endpoints that pass built images from the agent that built them to the others. */
function agentImageRoutes(app: Hono<AppEnv>, deps: Deps): void {
  app.put("/builds/:lease_id/image", async (c) => {
    const { lease_id } = c.req.param();
    const build = await requireBuildLease(deps, lease_id, c.get("agentTokenHash"));
    const announced = readUploadHeaders(c);
    const body = c.req.raw.body ?? new Blob([]).stream();
    await storeImageUpload(deps, build, lease_id, body, announced);
    return c.json({});
  });

  app.get("/images/:image", async (c) => c.json(await imageSource(deps, c.req.param("image"))));

  app.get("/images/:image/archive", async (c) => {
    return sendStored(c, await storedArchive(deps, c.req.param("image")));
  });
}
