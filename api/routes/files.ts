import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { idempotencyHeader } from "../../shared/wire/client/submission.ts";
import { FileDeleted, FilePage, UploadedFile } from "../../shared/wire/file.ts";
import type { RouteDeps } from "../deps.ts";
import { fileKey } from "../domain/files/store-key.ts";
import { findFile, forgetFile, storeFile, toFilePage } from "../files/uploads.ts";
import type { AppEnv } from "../http/context.ts";
import { sendDownload } from "../http/send-file.ts";
import { readFileHeaders, refuseForm } from "../http/body/upload-headers.ts";
import {
  bytes,
  downloadHeaders,
  downloads,
  headHeaders,
  heads,
} from "../openapi/responses/downloads.ts";
import { fileId, filePage, uploadedFile } from "../openapi/examples/files.ts";
import { problem } from "../openapi/responses/problems.ts";
import { json, problems } from "../openapi/responses/bodies.ts";
import { idParam, pageQuery } from "../openapi/parameters.ts";
import { listFiles } from "../store/files.ts";

const params = idParam("The `file_id` from the answer to the upload.", fileId);
const unknown = problem("not_found", { detail: `File ${fileId} does not exist.` });

/** Files that clients upload once and use in any number of jobs. */
export function fileRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const { config, now } = deps;
  const upload = createRoute({
    method: "post",
    path: "/files",
    operationId: "uploadFile",
    tags: ["Files"],
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
      ...problems("invalid_request", "length_required"),
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
    tags: ["Files"],
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
      ...problems("invalid_request"),
    },
  });
  app.openapi(list, async (c) => {
    const { before, limit, offset } = c.req.valid("query");
    const { db } = c.get("client");
    const rows = await listFiles(db, before, now(), limit + 1, offset);
    return c.json(toFilePage(db, rows, limit, offset), 200);
  });

  for (const method of ["get", "head"] as const) {
    const isHead = method === "head";
    app.openAPIRegistry.registerPath({
      method,
      path: "/files/{id}",
      operationId: isHead ? "getFileHeaders" : "downloadFile",
      tags: ["Files"],
      summary: isHead ? "Headers of an uploaded file" : "Download an uploaded file",
      request: { params, headers: isHead ? headHeaders : downloadHeaders },
      responses: { ...(isHead ? heads : downloads), 404: unknown },
    });
  }
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
    tags: ["Files"],
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
