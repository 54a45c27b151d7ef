import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { artifactNameRule, isArtifactName } from "../../shared/names.ts";
import { ArtifactList } from "../../shared/wire/executions.ts";
import { FileDeleted, FilePage, UploadedFile } from "../../shared/wire/files.ts";
import { idempotencyHeader } from "../../shared/wire/submissions.ts";
import type { ClientDeps, RouteDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { type Download, jsonRecord, sendDownload } from "../http/answer.ts";
import { readFileHeaders, refuseForm } from "../http/body.ts";
import type { AppEnv } from "../http/context.ts";
import { artifactList, jobId } from "../http/examples.ts";
import {
  bytes,
  describeDownload,
  idParam,
  jobIdParam,
  json,
  pageQuery,
  problem,
  problems,
} from "../http/responses.ts";
import { findSubmitted } from "../jobs/lease.ts";
import { findArtifact, listArtifacts } from "../jobs/output.ts";
import { inputArtifacts, internalArtifacts, requireExecution, toArtifact } from "../jobs/read.ts";
import { findExecution, findInputFile } from "../jobs/sql.ts";
import {
  bodyOf,
  findFile,
  forgetFile,
  openInputFile,
  resultName,
  resultOf,
  storeFile,
  toFilePage,
} from "./files.ts";
import { artifactKey, fileKey } from "./rules.ts";
import { listFiles } from "./sql.ts";

const fileId = "019aa5ef-9b3c-7d10-a2f4-1c5e7b9d3f20";

const uploadedFile: UploadedFile = {
  file_id: fileId,
  name: "prices.parquet",
  size_bytes: 20_481,
  sha256: "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
  content_type: "application/vnd.apache.parquet",
  created_at: "2026-11-21T09:29:07.000Z",
  expires_at: "2026-11-22T09:29:07.000Z",
};

const filePage: FilePage = {
  items: [uploadedFile],
  limit: 100,
  offset: 0,
  has_more: false,
  count: 1,
};

const params = idParam("The `file_id` from the answer to the upload.", fileId);
const unknown = problem("not_found", { detail: `File ${fileId} does not exist.` });

/** Files that clients upload once and use in any number of jobs. */
export function fileRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const { config, now } = deps;
  const upload = createRoute({
    method: "post",
    path: "/files",
    operationId: "uploadFile",
    summary: "Upload a file to use in jobs",
    middleware: refuseForm,
    description: `The body is the file itself: \`curl --data-binary @prices.parquet\`. At most ${config.max_file_bytes} bytes (\`max_file_bytes\`). It is kept for ${config.file_retention_hours} hours (\`file_retention_hours\`), and as long as a record refers to it. An upload that breaks off leaves nothing. One that would give all files more than \`max_files_bytes\` is 503.`,
    request: {
      query: z.object({
        name: z.string().openapi({
          description: "Its name: a relative path without '..'. Its content type follows from it.",
          example: uploadedFile.name,
        }),
      }),
      headers: z.object({
        "Idempotency-Key": idempotencyHeader.optional().openapi({
          description:
            "If the same upload is sent again with the same key, nothing is stored, and the answer is the same.",
          example: "prices-of-monday",
        }),
        "X-Airlock-SHA256": z.string().optional().openapi({
          description: "The file's SHA-256 in 64 hex digits. An upload that differs is refused.",
          example: uploadedFile.sha256,
        }),
      }),
      body: { required: true, content: { "application/octet-stream": { schema: bytes } } },
    },
    responses: {
      201: json(UploadedFile, "Stored.", { example: uploadedFile }, "Location"),
      ...problems("length_required"),
      409: problem("conflict", {
        detail: `The idempotency key was used for another file, ${fileId}. Use a new key.`,
      }),
      413: problem("too_large", {
        detail: `The file is larger than ${config.max_file_bytes} bytes (max_file_bytes).`,
      }),
    },
  });
  app.openapi(upload, async (c) => {
    const announced = readFileHeaders(c);
    const body = c.req.raw.body ?? new Blob([]).stream();
    const idempotencyKey = c.req.valid("header")["Idempotency-Key"];
    const { client } = c.var as AppEnv["Variables"];
    const file = await storeFile(
      client,
      c.req.valid("query").name,
      body,
      announced,
      idempotencyKey,
    );
    return c.json(file, 201, { Location: `/files/${file.file_id}` });
  });

  const list = createRoute({
    method: "get",
    path: "/files",
    operationId: "listFiles",
    summary: "Uploaded files, newest first",
    request: {
      query: z.object({
        before: z.uuid().optional().openapi({
          description: "Id of the last file of the previous page: only older files.",
          example: fileId,
        }),
        ...pageQuery,
      }),
    },
    responses: {
      200: json(FilePage, "A page of files.", { example: filePage }),
    },
  });
  app.openapi(list, async (c) => {
    const { before, limit, offset } = c.req.valid("query");
    const { db } = c.get("client");
    const rows = await listFiles(db, before, now(), limit + 1, offset);
    return c.json(toFilePage(db, rows, limit, offset), 200);
  });

  describeDownload(
    app,
    { path: "/files/{id}", request: { params }, responses: { 404: unknown } },
    {
      get: { operationId: "downloadFile", summary: "Download an uploaded file" },
      head: { operationId: "getFileHeaders", summary: "Headers of an uploaded file" },
    },
  );
  app.get("/files/:id", async (c) => {
    const row = await findFile(c.get("client"), c.req.param("id"));
    const { name, sha256, sizeBytes: size_bytes, contentType: content_type } = row;
    return sendDownload(c, {
      what: "The file",
      file: { name, size_bytes, sha256, content_type },
      open: (range) => deps.artifacts.get(fileKey(row), range),
    });
  });

  const removal = createRoute({
    method: "delete",
    path: "/files/{id}",
    operationId: "deleteFile",
    summary: "Remove an uploaded file",
    description: "No new job can use it. Jobs and records that refer to it keep their file.",
    request: { params },
    responses: {
      200: json(FileDeleted, "Removed.", { example: { file_id: fileId, deleted: true } }),
      404: unknown,
    },
  });
  app.openapi(removal, async (c) => {
    const { id } = c.req.valid("param");
    await forgetFile(c.get("client"), id);
    return c.json({ file_id: id, deleted: true as const }, 200);
  });
}

/** Downloads, and HEAD for the headers alone: docs/contract.md 6.21 to 6.23. */
export function artifactRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/jobs/{id}/artifacts",
    operationId: "listArtifacts",
    summary: "Artifacts of a job",
    description: "The files that the code wrote are listed once the job has ended.",
    request: { params: jobIdParam },
    responses: {
      200: json(ArtifactList, "All of them.", { example: artifactList }),
    },
  });
  app.openapi(list, async (c) => {
    const { id } = c.req.valid("param");
    const execution = await requireExecution(c.get("client"), id);
    const artifacts = (await listArtifacts(c.get("client").db, [id])).map(toArtifact);
    const listed = { job_id: id, artifacts, input_artifacts: inputArtifacts(execution) };
    return (await jsonRecord(c, listed)) as never;
  });

  describeDownload(
    app,
    {
      path: "/jobs/{job_id}/artifacts/{artifact_name}",
      description,
      request: { params: artifactParams, query },
      responses: refusals,
    },
    {
      get: { operationId: "downloadArtifact", summary: "Download an artifact" },
      head: { operationId: "getArtifactHeaders", summary: "Headers of an artifact" },
    },
  );

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
  const row = isInput ? undefined : await findArtifact(db, { executionId: jobId, name });
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

const nameRule = `The artifact name ${artifactNameRule}.`;

const description =
  "Every file that the code wrote to /output; `artifacts` of a record with `view=full` lists them. `result.json`, which is not listed, is `output` byte for byte. `_code.py`, `_input.json` and the names of `files` are what was submitted; where an output has the same name, `from=input` asks for the file that was submitted.";
const query = z.object({
  from: z.enum(["input"]).optional().openapi({ description: "Leave out what the code wrote." }),
});
const artifactParams = z.object({
  job_id: jobIdParam.shape.id.openapi({ param: { name: "job_id", in: "path" } }),
  artifact_name: z.string().openapi({
    description: "Slashes in a name may be sent percent-encoded or as they are.",
    example: "plot.png",
  }),
});
const refusals = {
  400: problem("invalid_request", { detail: nameRule, errors: [] }),
  404: problem("not_found", { detail: `Artifact plot.png of job ${jobId} does not exist.` }),
};
