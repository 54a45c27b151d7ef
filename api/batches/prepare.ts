import { canonicalJsonInPieces, plainNumber, type JsonObject } from "../../shared/json.ts";
import { letOthersRun } from "../../shared/let-others-run.ts";
import type { InputWay } from "../../shared/wire/file.ts";
import { AsyncSubmitRequest } from "../../shared/wire/client/submission.ts";
import type { ClientDeps } from "../deps.ts";
import type { Environment } from "../domain/environment.ts";
import { fieldErrors } from "../../shared/wire/field-errors.ts";
import { AppError, notValid } from "../errors.ts";
import { fileFinder } from "../files/input-files.ts";
import { type Availability, checkAvailability } from "../jobs/availability.ts";
import { newExecution, runnableEnvironment, type Origin } from "../jobs/new-execution.ts";
import { databaseFull } from "../jobs/refusals.ts";
import type { NewExecution } from "../store/jobs/submit.ts";

/** A job of a batch that can be stored, or why it cannot. */
export type Prepared =
  | { execution: NewExecution; refusal?: AppError | undefined; wait?: string | undefined }
  | { problem: AppError };

/** Jobs that are prepared in one tick of the event loop: a few milliseconds. */
const jobsAtOnce = 50;

/** Validates the jobs of a batch, each by itself. Other requests run in between. */
export async function prepareJobs(
  deps: ClientDeps,
  jobs: JsonObject[],
  origin: Origin,
): Promise<Prepared[]> {
  const full = await databaseFull(deps);
  const environments = new Map<string, Promise<Environment>>();
  const availabilities = new Map<string, Promise<Availability>>();
  const lookUp: LookUp = {
    environment: (name) => once(environments, name, () => runnableEnvironment(deps, name)),
    availability: (environment, inputs, language) =>
      once(availabilities, `${inputs} ${language} ${environment.jobType.name}`, async () => {
        const needs = { inputs, language };
        const found = await checkAvailability(deps, "async", environment, needs);
        return { refusal: full, ...found };
      }),
    files: fileFinder(deps),
  };
  const prepared: Prepared[] = [];
  for (const [n, job] of jobs.entries()) {
    if (n % jobsAtOnce === jobsAtOnce - 1) await letOthersRun();
    prepared.push(
      await prepare(deps, job, origin, lookUp).catch((error: unknown) => {
        if (error instanceof AppError) return { problem: error };
        throw error;
      }),
    );
  }
  return prepared;
}

/** What several jobs of a batch may need; each is looked up once. */
interface LookUp {
  environment: (jobType: string) => Promise<Environment>;
  availability: (
    environment: Environment,
    inputs: InputWay | null,
    language: string | undefined,
  ) => Promise<Availability>;
  files: ReturnType<typeof fileFinder>;
}

function once<T>(known: Map<string, Promise<T>>, name: string, find: () => Promise<T>): Promise<T> {
  const found = known.get(name) ?? find();
  known.set(name, found);
  return found;
}

async function prepare(
  deps: ClientDeps,
  job: JsonObject,
  origin: Origin,
  lookUp: LookUp,
): Promise<Prepared> {
  const plain = Object.fromEntries(Object.entries(job).map(([k, v]) => [k, plainNumber(v)]));
  const parsed = AsyncSubmitRequest.safeParse(plain);
  if (!parsed.success) throw notValid("The job", fieldErrors(parsed.error));
  const environment = await lookUp.environment(parsed.data.job_type);
  const files = await lookUp.files(parsed.data.files ?? []);
  const execution = await newExecution(deps, parsed.data, origin, environment.jobType, files);
  const { refusal, wait } = await lookUp.availability(
    environment,
    execution.inputs ?? null,
    execution.program?.language,
  );
  return { execution, refusal: files.problem ?? refusal, wait };
}

/** A hash by which a repeated batch is recognised. */
export async function identityOfBatch(
  { sha256 }: ClientDeps,
  jobs: JsonObject[],
  prepared: Prepared[],
  isAtomic: boolean,
): Promise<string> {
  const parts: unknown[] = [];
  for (const [n, one] of prepared.entries()) {
    parts.push(
      "problem" in one
        ? await sha256(await canonicalJsonInPieces(jobs[n]))
        : [one.execution.submissionHash, one.execution.idempotencyKey ?? null],
    );
  }
  return sha256(JSON.stringify([isAtomic, parts]));
}
