import type { Context } from "hono";
import type { ExecuteRequest, SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { createMiddleware } from "hono/factory";
import type { RouteDeps } from "../../deps.ts";
import { unavailable } from "../../errors.ts";
import { wantsEvents } from "../../events/encode.ts";
import { followSync } from "../../events/follow-sync.ts";
import { endingWith, type OpenStreams } from "../../events/open-streams.ts";
import { eventHeaders, eventStream } from "../../events/stream.ts";
import { forgetBody } from "../../http/body/read.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonRecord, patientJson } from "../../http/json-page.ts";
import { preferredWaitS } from "../../http/prefer.ts";
import { wrongField } from "../../jobs/new-execution.ts";
import { withLongFields } from "../../jobs/read-records.ts";
import { toRecord, toSyncResult } from "../../jobs/record.ts";
import { waitBriefly, waitForSync } from "../../jobs/wait.ts";

/** A process that stops accepts no new synchronous requests. */
export const refuseWhileDraining = ({ isDraining }: RouteDeps) =>
  createMiddleware<AppEnv>(async (_c, next) => {
    if (isDraining()) throw unavailable("The service is stopping.", 5);
    await next();
  });

/** @throws AppError 400 when a request brings tools, and nobody would hear of their calls. */
export function refuseUnseenTools(
  c: Context<AppEnv>,
  { tools = [] }: Pick<ExecuteRequest, "tools">,
): void {
  if (tools.length === 0 || wantsEvents(c.req.header("Accept"))) return;
  throw wrongField(
    "tools",
    `need the job's id before its end: ask for events with Accept: text/event-stream, or send the request to ${c.req.path}/async`,
  );
}

/** Submits with `submit`, and answers with the events of the run or with its result. */
export async function answerRun(
  c: Context<AppEnv>,
  deps: RouteDeps,
  streams: OpenStreams,
  hasKey: boolean,
  submit: () => Promise<SubmittedJob>,
) {
  const client = c.get("client");
  c.get("answer").take(0);
  if (wantsEvents(c.req.header("Accept"))) {
    const end = streams.begin(c.get("caller")?.keyId);
    const { job_id } = await submit().catch((error: unknown) => {
      end();
      throw error;
    });
    await forgetBody(c);
    const events = (stop: AbortSignal) => endingWith(followSync(client, job_id, hasKey, stop), end);
    const body = eventStream(deps, "sse", events, [c.req.raw.signal], "synchronous");
    return c.body(body, 200, eventHeaders("sse"));
  }
  const { job_id } = await submit();
  await forgetBody(c);
  const isRunning = Promise.withResolvers<void>();
  const made = patientJson(c, deps, isRunning.promise, async (signal) => {
    const ended = await waitForSync(client, job_id, hasKey, signal, isRunning.resolve);
    await client.db.durable();
    return jsonRecord(c, withLongFields(client.db, ended, toSyncResult(ended)));
  });
  return (await made) as never;
}

/** Answers for a job that is stored: at once, or with its record if it ends while the client prefers to wait. */
export async function answerQueued(c: Context<AppEnv>, job: SubmittedJob) {
  const Location = `/jobs/${job.job_id}`;
  const waitS = preferredWaitS(c.req.header("Prefer"));
  if (waitS === undefined) return c.json(job, 202, { Location });
  const headers = { Location, "Preference-Applied": `wait=${waitS}` };
  await forgetBody(c);
  const ended = await waitBriefly(c.get("client"), job.job_id, waitS * 1000, c.req.raw.signal);
  if (!ended) return c.json(job, 202, headers);
  const record = withLongFields(c.get("client").db, ended, toRecord(ended, undefined));
  return (await jsonRecord(c, record, headers)) as never;
}
