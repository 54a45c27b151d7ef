import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Artifact } from "../../shared/wire/execution.ts";
import type { Deps } from "../deps.ts";
import type { ByteRange } from "../domain/byte-range.ts";
import { contentDisposition, isArtifactName, matchesEtag } from "../domain/artifact-name.ts";
import { inputArtifacts, internalArtifacts, toArtifact } from "../jobs/record.ts";
import { AppError, notFound } from "../errors.ts";
import type { AppEnv } from "../http/context.ts";
import { sendStored } from "../http/stored-file.ts";
import { artifactKey } from "../agents/lease-posts.ts";
import { findArtifact, findExecution, findSubmitted } from "../store/jobs/read.ts";
import { describeArtifacts, nameRule } from "../openapi/artifacts-openapi.ts";

interface Found {
  artifact: Artifact;
  open: (range?: ByteRange) => Promise<ReadableStream<Uint8Array> | undefined>;
}

/** Downloads, and HEAD for the headers alone: docs/contract.md 6.21 to 6.23. */
export function artifactRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  describeArtifacts(app);

  app.get("/jobs/:job_id/artifacts/:artifact_name{.+}", async (c) => {
    const { job_id, artifact_name } = c.req.param();
    if (!isArtifactName(artifact_name)) {
      throw new AppError("invalid_request", nameRule);
    }
    const found = await find(deps, job_id, artifact_name);
    if (!found) throw await missing(deps, job_id, artifact_name);
    const { artifact, open } = found;
    const opened = async (range?: ByteRange) => {
      const body = await open(range);
      if (!body) throw new Error(`the bytes of artifact ${artifact.name} of ${job_id} are missing`);
      return body;
    };
    const etag = `"${artifact.sha256}"`;
    const unchanged = { ETag: etag, "Cache-Control": "private, no-cache, no-transform" };
    const headers = {
      ...unchanged,
      "Content-Type": artifact.content_type,
      "Content-Disposition": contentDisposition(artifact.name),
      "Accept-Ranges": "bytes",
    };
    if (matchesEtag(c.req.header("If-None-Match"), etag)) return c.body(null, 304, unchanged);
    const size = artifact.size_bytes;
    if (c.req.method === "HEAD") {
      return c.body(null, 200, { ...headers, "Content-Length": String(size) });
    }
    return sendStored(c, { name: "The artifact", size, etag, headers, open: opened });
  });
}

async function missing({ db }: Deps, jobId: string, name: string): Promise<AppError> {
  const execution = await findExecution(db, jobId);
  return notFound(`Artifact ${name} of job ${jobId}`, execution && { job_id: jobId });
}

async function find(deps: Deps, jobId: string, name: string): Promise<Found | undefined> {
  const { db, artifacts } = deps;
  const row = await findArtifact(db, jobId, name);
  if (row)
    return { artifact: toArtifact(row), open: (range) => artifacts.get(artifactKey(row), range) };
  const execution = await findExecution(db, jobId);
  const artifact = execution && inputArtifacts(execution).find((a) => a.name === name);
  if (!artifact) return undefined;
  return {
    artifact,
    open: async (range) => {
      const submitted = await findSubmitted(db, jobId);
      const whole = name === internalArtifacts.code ? submitted?.code : submitted?.input;
      const part = range ? whole?.subarray(range.offset, range.offset + range.length) : whole;
      return part === undefined
        ? undefined
        : (new Response(part as Uint8Array<ArrayBuffer>).body ?? undefined);
    },
  };
}
