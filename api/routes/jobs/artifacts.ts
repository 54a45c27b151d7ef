import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { ArtifactList } from "../../../shared/wire/execution.ts";
import type { ClientDeps } from "../../deps.ts";
import { isArtifactName } from "../../../shared/artifact-name.ts";
import { bodyOf, openInputFile, resultName, resultOf } from "../../files/input-files.ts";
import { findInputFile } from "../../store/jobs/input-files.ts";
import { inputArtifacts, internalArtifacts, toArtifact } from "../../jobs/record.ts";
import { AppError, notFound } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonRecord } from "../../http/json-page.ts";
import { sendDownload, type Download } from "../../http/send-file.ts";
import { artifactKey } from "../../domain/files/store-key.ts";
import { findExecution } from "../../store/jobs/read.ts";
import { findSubmitted } from "../../store/jobs/lease.ts";
import { findArtifact, listArtifacts } from "../../store/output/artifacts.ts";
import { artifactList } from "../../openapi/examples/jobs.ts";
import { json, problems } from "../../openapi/responses/bodies.ts";
import { jobIdParam } from "../../openapi/parameters.ts";
import { describeArtifacts, nameRule } from "../../openapi/artifacts.ts";
import { requireExecution } from "../../jobs/read-records.ts";

/** Downloads, and HEAD for the headers alone: docs/contract.md 6.21 to 6.23. */
export function artifactRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/jobs/{id}/artifacts",
    operationId: "listArtifacts",
    tags: ["Artifacts"],
    summary: "Artifacts of a job",
    description: "The files that the code wrote are listed once the job has ended.",
    request: { params: jobIdParam },
    responses: {
      200: json(ArtifactList, "All of them.", { example: artifactList }),
      ...problems("not_found"),
    },
  });
  app.openapi(list, async (c) => {
    const { id } = c.req.valid("param");
    const execution = await requireExecution(c.get("client"), id);
    const artifacts = (await listArtifacts(c.get("client").db, [id])).map(toArtifact);
    const listed = { job_id: id, artifacts, input_artifacts: inputArtifacts(execution) };
    return (await jsonRecord(c, listed)) as never;
  });

  describeArtifacts(app);

  app.get("/jobs/:job_id/artifacts/:artifact_name{.+}", async (c) => {
    const { job_id, artifact_name } = c.req.param();
    if (!isArtifactName(artifact_name)) {
      throw new AppError("invalid_request", nameRule);
    }
    const isInput = c.req.query("from") === "input";
    const client = c.get("client");
    const found = await find(client, job_id, artifact_name, isInput);
    if (!found) throw await missing(client, job_id, artifact_name);
    return sendDownload(c, { what: "The artifact", ...found });
  });
}

async function missing({ db }: ClientDeps, jobId: string, name: string): Promise<AppError> {
  const execution = await findExecution(db, jobId);
  return notFound(`Artifact ${name} of job ${jobId}`, execution && { job_id: jobId });
}

async function find(
  deps: ClientDeps,
  jobId: string,
  name: string,
  isInput: boolean,
): Promise<Omit<Download, "what"> | undefined> {
  const { db, artifacts } = deps;
  const row = isInput ? undefined : await findArtifact(db, jobId, name);
  if (row)
    return { file: toArtifact(row), open: (range) => artifacts.get(artifactKey(row), range) };
  const result = isInput || name !== resultName ? undefined : await resultOf(deps, jobId);
  if (result) {
    const file = toArtifact({ ...result, name, contentType: "application/json" });
    return { file, open: async (range) => bodyOf(result.content, range), isInMemory: true };
  }
  const execution = await findExecution(db, jobId);
  const file = execution && inputArtifacts(execution).find((a) => a.name === name);
  if (!execution || !file) return findGiven(deps, jobId, name);
  return {
    file,
    open: async (range) => {
      const submitted = await findSubmitted(db, jobId);
      const whole = name === internalArtifacts.code ? submitted?.code : submitted?.input;
      return whole && bodyOf(whole, range);
    },
    isInMemory: true,
  };
}

/** A file that the request had given the job. */
async function findGiven(
  { artifacts, db }: ClientDeps,
  jobId: string,
  name: string,
): Promise<Omit<Download, "what"> | undefined> {
  const row = await findInputFile(db, jobId, { name });
  if (!row) return undefined;
  return {
    file: toArtifact(row),
    open: (range) => openInputFile(artifacts, row, range),
    isInMemory: row.storeKey === null,
  };
}
