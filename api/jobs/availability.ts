import type { InputWay } from "../../shared/wire/file.ts";
import type { ClientDeps } from "../deps.ts";
import { isLive, whyUnavailable } from "../domain/agents/capacity.ts";
import type { Environment } from "../domain/environment.ts";
import { whyNoLanguage } from "../domain/agents/languages.ts";
import { givesInputs } from "../domain/agents/placement.ts";
import { AppError, unavailable } from "../errors.ts";
import { timestamp } from "./record.ts";
import { turnMessage, whyNobodyRuns, whyNobodyTakes } from "../domain/agents/waiting.ts";
import { readEnvironment } from "./environments.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { listAgents } from "../store/agents/agents.ts";
import { openBuilds } from "../store/builds/builds.ts";
import { findTenant } from "../store/tenants.ts";
import { findSession } from "../store/sessions/sessions.ts";
import { readQueueStats } from "../store/statistics/queue.ts";

/** Whether a submission can be accepted and run now. */
export interface Availability {
  /** Why it must be refused now. */
  refusal?: AppError | undefined;
  /** Why it would wait longer than for its turn. */
  wait?: string | undefined;
}

export async function checkAvailability(
  { config, db, now }: ClientDeps,
  mode: "sync" | "async",
  environment: Environment,
  { inputs = null, language }: { inputs?: InputWay | null; language?: string | undefined } = {},
): Promise<Availability> {
  const known = await listAgents(db);
  const at = now();
  const found = whyUnavailable(mode, known, config, at);
  if (found) return { refusal: unavailable(found.detail, found.retryAfterS) };
  const live = known.filter((agent) => isLive(agent, config, at));
  const nobody = whyNobodyRuns(environment, live, { inputs });
  const missing = language === undefined ? undefined : whyNoLanguage(environment, live, language);
  if (missing) {
    const errors = [{ path: "language", message: `must be one of: ${missing.known}` }];
    return { refusal: new AppError("language_unavailable", missing.detail, { errors }) };
  }
  if (nobody === undefined) return { wait: whyNobodyTakes(environment, known, config, at, inputs) };
  if (inputs === "mount" && !live.some((agent) => givesInputs(agent, inputs)) && live.length > 0) {
    return { refusal: new AppError("files_too_large", nobody) };
  }
  return mode === "async" ? { wait: nobody } : { refusal: unavailable(nobody, 5) };
}

/** Tells a client why its queued execution waits. */
export async function explainWait(
  deps: ClientDeps,
  execution: ExecutionRow,
  position: number,
): Promise<string> {
  if (execution.sessionId !== null) return explainCall(deps, execution.sessionId, position);
  const reason = await whyMoreThanItsTurn(deps, execution);
  const turn = turnMessage(position);
  return reason === undefined ? turn : `${turn} ${reason}`;
}

async function explainCall({ db }: ClientDeps, id: string, position: number): Promise<string> {
  const session = await findSession(db, id);
  if (session?.status !== "ready") return `Waiting for session ${id}, which is ${session?.status}.`;
  return `Waiting for its turn in session ${id}, at position ${position}.`;
}

async function whyMoreThanItsTurn(
  deps: ClientDeps,
  { tenant, jobType, availableAt, attempt, inputs }: ExecutionRow,
): Promise<string | undefined> {
  const { config, db, now } = deps;
  if (attempt === 0 && availableAt > now()) return `It is to start at ${timestamp(availableAt)}.`;
  const environment = await readEnvironment(deps, jobType);
  if (!environment) return `Job type ${jobType} is not configured any more: cancel the job.`;
  const [known, builds, { runningByAgent }, owner] = await Promise.all([
    listAgents(db),
    openBuilds(db),
    readQueueStats(db),
    findTenant(db, tenant),
  ]);
  const at = now();
  const live = known.filter((agent) => isLive(agent, config, at));
  const isBeingBuilt = builds.some((build) => build.jobType === jobType);
  const nobody = whyNobodyRuns(environment, live, { inputs, isBeingBuilt });
  if (nobody !== undefined) return nobody;
  if (availableAt > at)
    return `It could not be started, and is tried again at ${timestamp(availableAt)}.`;
  const { running = 0, maxRunning = null } = owner ?? {};
  if (maxRunning !== null && running >= maxRunning)
    return `Tenant ${tenant} has ${running} running jobs (max_running ${maxRunning}): it waits until one ends.`;
  return whyNobodyTakes(environment, known, config, at, inputs, runningByAgent);
}
