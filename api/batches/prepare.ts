import { plainNumber, type JsonObject } from "../../shared/json.ts";
import type { InputWay } from "../../shared/wire/file.ts";
import { AsyncSubmitRequest } from "../../shared/wire/submission.ts";
import type { Deps } from "../deps.ts";
import type { Unavailable } from "../domain/capacity.ts";
import type { Environment } from "../domain/environment.ts";
import { canonicalJson, neededFor } from "../domain/submission.ts";
import { AppError } from "../errors.ts";
import { fieldErrors } from "../http/validation.ts";
import { checkAvailability } from "../jobs/availability.ts";
import { newExecution, runnableEnvironment, type Origin } from "../jobs/new-execution.ts";
import { othersTurn } from "../jobs/others-turn.ts";
import { databaseFull } from "../jobs/submit.ts";
import type { NewExecution } from "../store/jobs/submit.ts";

/** A job of a batch that can be stored, or why it cannot. */
export type Prepared =
  | { execution: NewExecution; refusal?: Unavailable | undefined; wait?: string | undefined }
  | { problem: AppError };

/** Jobs that are prepared in one turn of the event loop: a few milliseconds. */
const jobsAtOnce = 50;

/** Validates the jobs of a batch, each by itself. Other requests run in between. */
export async function prepareJobs(
  deps: Deps,
  jobs: JsonObject[],
  origin: Origin,
): Promise<Prepared[]> {
  const places = new Map<string, Promise<Place>>();
  const full = await databaseFull(deps);
  const placeOf = (name: string, inputs: InputWay | null): Promise<Place> => {
    const kind = `${inputs} ${name}`;
    const known = places.get(kind) ?? findPlace(deps, name, inputs);
    places.set(kind, known);
    return known;
  };
  const prepared: Prepared[] = [];
  for (const [n, job] of jobs.entries()) {
    if (n % jobsAtOnce === jobsAtOnce - 1) await othersTurn();
    prepared.push(
      await prepare(deps, job, origin, placeOf, full).catch((error: unknown) => {
        if (error instanceof AppError) return { problem: error };
        throw error;
      }),
    );
  }
  return prepared;
}

interface Place {
  environment: Environment;
  refusal?: Unavailable | undefined;
  wait?: string | undefined;
}

async function findPlace(deps: Deps, jobType: string, inputs: InputWay | null): Promise<Place> {
  const environment = await runnableEnvironment(deps, jobType);
  return { environment, ...(await checkAvailability(deps, "async", environment, inputs)) };
}

async function prepare(
  deps: Deps,
  job: JsonObject,
  origin: Origin,
  placeOf: (jobType: string, inputs: InputWay | null) => Promise<Place>,
  full: Unavailable | undefined,
): Promise<Prepared> {
  const plain = Object.fromEntries(Object.entries(job).map(([k, v]) => [k, plainNumber(v)]));
  const parsed = AsyncSubmitRequest.safeParse(plain);
  if (!parsed.success) {
    const errors = fieldErrors(parsed.error);
    const detail = errors.map(({ path, message }) => `${path}: ${message}`).join("; ");
    throw new AppError("invalid_request", `The job is not valid: ${detail}`, { errors });
  }
  const {
    environment,
    refusal = full,
    wait,
  } = await placeOf(parsed.data.job_type, neededFor(parsed.data));
  const execution = await newExecution(deps, parsed.data, origin, environment.jobType);
  return { execution, refusal, wait };
}

/** The text by which a repeated batch is recognised as equal. */
export function batchText(jobs: JsonObject[], prepared: Prepared[], isAtomic: boolean): string {
  const parts = prepared.map((one, n) =>
    "problem" in one
      ? canonicalJson(jobs[n])
      : [one.execution.submissionHash, one.execution.idempotencyKey ?? null],
  );
  return JSON.stringify([isAtomic, parts]);
}
