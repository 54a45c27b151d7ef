import { type OpenAPIHono, z } from "@hono/zod-openapi";
import { artifactNameRule } from "../../shared/artifact-name.ts";
import type { AppEnv } from "../http/context.ts";
import { jobId } from "./examples/jobs.ts";
import { downloadHeaders, downloads, headHeaders, heads } from "./responses/downloads.ts";
import { problem } from "./responses/problems.ts";
import { jobIdParam } from "./parameters.ts";

export const nameRule = `The artifact name ${artifactNameRule}.`;

const description =
  "Every file that the code wrote to /output; `artifacts` of a record with `view=full` lists them. `result.json`, which is not listed, is `output` byte for byte. `_code.py`, `_input.json` and the names of `files` are what was submitted; where an output has the same name, `from=input` asks for the file that was submitted.";
const query = z.object({
  from: z.enum(["input"]).optional().openapi({ description: "Leave out what the code wrote." }),
});
const params = z.object({
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
/** Describes the artifact endpoints. Their route accepts names with slashes, which OpenAPI paths cannot express. */
export function describeArtifacts({ openAPIRegistry }: OpenAPIHono<AppEnv>): void {
  const path = "/jobs/{job_id}/artifacts/{artifact_name}";
  openAPIRegistry.registerPath({
    method: "get",
    path,
    operationId: "downloadArtifact",
    tags: ["Artifacts"],
    summary: "Download an artifact",
    description,
    request: {
      params,
      query,
      headers: downloadHeaders,
    },
    responses: { ...downloads, ...refusals },
  });
  openAPIRegistry.registerPath({
    method: "head",
    path,
    operationId: "getArtifactHeaders",
    tags: ["Artifacts"],
    summary: "Headers of an artifact",
    description,
    request: { params, query, headers: headHeaders },
    responses: { ...heads, ...refusals },
  });
}
