import { type Context, Hono } from "hono";
import { JoinRequest, RotateRequest } from "../../shared/wire/access.ts";
import { AnyOutputReport } from "../../shared/wire/executions.ts";
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
import type { ExecutionRow } from "../jobs/sql.ts";
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
  const followReply = (execution: ExecutionRow): WatchReply =>
    isFollowed(execution, deps.now()) ? { watch: true } : { watch: false };
  const app = new Hono<AppEnv>();
  const requireJob = (c: Context<AppEnv, "/leases/:lease_id/*">) =>
    requireLease(deps, c.req.param("lease_id"), c.get("agentTokenHash"));
  const requireBuild = (c: Context<AppEnv, "/builds/:lease_id/*">) =>
    requireBuildLease(deps, c.req.param("lease_id"), c.get("agentTokenHash"));
  const requireSession = (c: Context<AppEnv, "/sessions/:lease_id/*">) =>
    requireSessionLease(deps, c.req.param("lease_id"), c.get("agentTokenHash"));

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

  app.post("/leases/:lease_id/started", async (c) => {
    const report = await parseBody(c, StartedReport, smallBytes);
    const execution = await requireJob(c);
    await recordStart(deps, execution, report);
    return c.json(followReply(execution));
  });

  app.post("/leases/:lease_id/logs", async (c) => {
    const report = await parseBody(c, AnyOutputReport, resultBytes);
    const execution = await requireJob(c);
    await recordLog(deps, execution, report);
    return c.json(followReply(execution));
  });

  app.post("/leases/:lease_id/items", async (c) => {
    const report = await parseBody(c, ItemsReport, itemsBytes);
    const execution = await requireJob(c);
    await recordShown(deps, execution, report);
    return c.json(followReply(execution));
  });

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

  app.post("/leases/:lease_id/release", async (c) => {
    const report = await parseBody(c, ReleaseReport, smallBytes);
    await requireJob(c);
    await releaseLease(deps, c.req.param("lease_id"), report);
    return c.json({});
  });

  app.post("/sessions/:lease_id/ready", async (c) => {
    const report = await parseBody(c, SessionReady, smallBytes);
    await recordReady(deps, await requireSession(c), c.req.param("lease_id"), report);
    return c.json({});
  });

  app.post("/sessions/:lease_id/ended", async (c) => {
    const report = await parseBody(c, SessionEnded, smallBytes);
    await recordSessionEnd(deps, await requireSession(c), c.req.param("lease_id"), report);
    return c.json({});
  });

  app.post("/sessions/:lease_id/release", async (c) => {
    const report = await parseBody(c, ReleaseReport, smallBytes);
    await requireSession(c);
    await releaseSession(deps, c.req.param("lease_id"), report);
    return c.json({});
  });

  app.post("/builds/:lease_id/logs", async (c) => {
    const chunk = await parseBody(c, BuildLogChunk, smallBytes);
    await appendBuildLog(deps, await requireBuild(c), c.req.param("lease_id"), chunk);
    return c.json({});
  });

  app.post("/builds/:lease_id/result", async (c) => {
    const report = await parseBody(c, BuildReport, smallBytes);
    await requireBuild(c);
    await recordBuildResult(deps, c.req.param("lease_id"), report);
    return c.json({});
  });

  app.post("/builds/:lease_id/release", async (c) => {
    const report = await parseBody(c, ReleaseReport, smallBytes);
    await requireBuild(c);
    await releaseBuildLease(deps, c.req.param("lease_id"), report);
    return c.json({});
  });

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
