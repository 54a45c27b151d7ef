import { type OpenAPIHono, z } from "@hono/zod-openapi";
import type { AppEnv } from "../http/context.ts";
import { jobId } from "./examples.ts";
import { problem, problemRef } from "./problem-responses.ts";
import { headers, type ResponseHeader } from "./response-headers.ts";
import { jobIdParam } from "./responses.ts";

export const nameRule = "The artifact name must be a relative path without '..'.";

const description =
  "Every file that the code wrote to /output, but result.json; `artifacts` of a record with `view=full` lists them. `_code.py` and `_input.json` are what was submitted.";
const params = z.object({
  job_id: jobIdParam.shape.id.openapi({ param: { name: "job_id", in: "path" } }),
  artifact_name: z.string().openapi({
    description: "Slashes in a name may be sent percent-encoded or as they are.",
    example: "plot.png",
  }),
});
const ifNoneMatch = z
  .string()
  .optional()
  .openapi({ description: "ETags that the client has, or `*`." });
const ofFile: ResponseHeader[] = ["ETag", "Content-Length", "Content-Disposition", "Accept-Ranges"];
const bytes = { "*/*": { schema: z.string().openapi({ format: "binary" }) } };
const refusals = {
  400: problem("invalid_request", { detail: nameRule, errors: [] }),
  404: problem("not_found", { detail: `Artifact plot.png of job ${jobId} does not exist.` }),
};
const unchanged = {
  description: "If-None-Match has the current ETag: the file is unchanged.",
  headers: headers("ETag"),
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
      headers: z.object({
        "If-None-Match": ifNoneMatch,
        Range: z.string().optional().openapi({ description: "Such as `bytes=0-1023`." }),
        "If-Range": z
          .string()
          .optional()
          .openapi({ description: "An ETag; `Range` applies only if it is current." }),
      }),
    },
    responses: {
      200: {
        description: "The file, under its own Content-Type.",
        headers: headers(...ofFile),
        content: bytes,
      },
      206: {
        description: "The part of the file that `Range` asked for.",
        headers: headers(...ofFile, "Content-Range"),
        content: bytes,
      },
      304: unchanged,
      416: problemRef("range_not_satisfiable"),
      ...refusals,
    },
  });
  openAPIRegistry.registerPath({
    method: "head",
    path,
    operationId: "getArtifactHeaders",
    tags: ["Artifacts"],
    summary: "Headers of an artifact",
    description,
    request: { params, headers: z.object({ "If-None-Match": ifNoneMatch }) },
    responses: {
      200: { description: "The headers of the download.", headers: headers(...ofFile) },
      304: unchanged,
      ...refusals,
    },
  });
}
