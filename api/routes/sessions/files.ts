import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { SessionFiles } from "../../../shared/wire/client/session.ts";
import type { RouteDeps } from "../../deps.ts";
import { artifactKey } from "../../domain/files/store-key.ts";
import { contentTypeOf } from "../../domain/files/content-type.ts";
import { refuseForm } from "../../http/body/upload-headers.ts";
import { readBytes } from "../../http/body/read.ts";
import type { AppEnv } from "../../http/context.ts";
import { originOf } from "../../http/origin.ts";
import { sendDownload } from "../../http/send-file.ts";
import { sessionFile } from "../../openapi/examples/sessions.ts";
import { json, problems } from "../../openapi/responses/bodies.ts";
import {
  bytes,
  downloadHeaders,
  downloads,
  headHeaders,
  heads,
} from "../../openapi/responses/downloads.ts";
import { problem } from "../../openapi/responses/problems.ts";
import {
  type Asking,
  checkPath,
  fetchFile,
  listFolder,
  removeFile,
  writeFile,
} from "../../sessions/files.ts";
import { refuseWhileDraining } from "../jobs/answer-run.ts";
import { endedSession, sessionParam, unknownSession } from "./sessions.ts";

const path = "/sessions/{id}/files/{path}";
const params = sessionParam.extend({
  path: z.string().openapi({
    param: { name: "path", in: "path" },
    description: "A path below /output. Slashes in it may be sent percent-encoded or as they are.",
    example: sessionFile.path,
  }),
});
const noFile = problem("not_found", { detail: `${sessionFile.path} is no file of the session.` });
const refusals = { 404: noFile, 409: endedSession, ...problems("invalid_request", "unavailable") };
const inTurn =
  "It is a call, of the kind `files`: it waits for its turn, and lists leave it out unless they ask for it.";

/** Files of sessions. Their routes accept paths with slashes, which OpenAPI paths cannot express. */
export function sessionFileRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const { config } = deps;
  const draining = refuseWhileDraining(deps);
  const asking = (c: Context<AppEnv>, id: string): Asking => ({
    deps: c.get("client"),
    id,
    origin: originOf(deps, c),
    signal: c.req.raw.signal,
  });

  const list = createRoute({
    method: "get",
    path: "/sessions/{id}/files",
    operationId: "listSessionFiles",
    tags: ["Sessions"],
    summary: "List a folder of a session",
    description: `At most a thousand entries, ordered by name. ${inTurn}`,
    middleware: draining,
    request: {
      params: sessionParam,
      query: z.object({
        path: z
          .string()
          .default("")
          .openapi({ description: "A folder below /output; default: /output itself." }),
      }),
    },
    responses: {
      200: json(SessionFiles, "Its entries.", {
        example: { path: "tables", items: [sessionFile] },
      }),
      404: unknownSession,
      409: endedSession,
      ...problems("invalid_request", "unavailable"),
    },
  });
  app.openapi(list, async (c) => {
    const { path } = c.req.valid("query");
    if (path !== "") checkPath(path);
    const items = await listFolder(asking(c, c.req.valid("param").id), path);
    return c.json({ path, items }, 200);
  });

  const { openAPIRegistry } = app;
  const common = { path, tags: ["Sessions"] };
  openAPIRegistry.registerPath({
    ...common,
    method: "get",
    operationId: "readSessionFile",
    summary: "Download a file of a session",
    description: inTurn,
    request: { params, headers: downloadHeaders },
    responses: { ...downloads, ...refusals },
  });
  openAPIRegistry.registerPath({
    ...common,
    method: "head",
    operationId: "getSessionFileHeaders",
    summary: "Headers of a file of a session",
    description: inTurn,
    request: { params, headers: headHeaders },
    responses: { ...heads, ...refusals },
  });
  openAPIRegistry.registerPath({
    ...common,
    method: "put",
    operationId: "writeSessionFile",
    summary: "Write a file of a session",
    description: `The body is the file itself, of at most ${config.max_request_bytes} bytes (\`max_request_bytes\`); larger ones can be uploaded and sent with a call (\`files\`). Folders of its path are made, and a file that is there is replaced. ${inTurn}`,
    request: {
      params,
      body: { required: true, content: { "application/octet-stream": { schema: bytes } } },
    },
    responses: {
      204: { description: "Written." },
      ...refusals,
      404: unknownSession,
      ...problems("too_large", "files_too_large"),
    },
  });
  openAPIRegistry.registerPath({
    ...common,
    method: "delete",
    operationId: "deleteSessionFile",
    summary: "Remove a file or a folder of a session",
    description: `A folder goes with all that it has. ${inTurn}`,
    request: { params },
    responses: { 204: { description: "Removed." }, ...refusals },
  });

  const route = "/sessions/:id/files/:path{.+}";
  app.get(route, draining, async (c) => {
    const { id, path } = c.req.param();
    checkPath(path);
    const { artifacts, execution } = await fetchFile(asking(c, id), path);
    const [row] = artifacts;
    if (!row) throw new Error(`execution ${execution.id} has no artifact`);
    return sendDownload(c, {
      what: "The file",
      file: {
        name: path,
        size_bytes: row.sizeBytes,
        sha256: row.sha256,
        content_type: contentTypeOf(path),
      },
      open: (range) => deps.artifacts.get(artifactKey(row), range),
    });
  });
  app.put(route, draining, refuseForm, async (c) => {
    const { id, path } = c.req.param();
    checkPath(path);
    const content = await readBytes(c, config.max_request_bytes);
    await writeFile(asking(c, id), path, content);
    return c.body(null, 204);
  });
  app.delete(route, draining, async (c) => {
    const { id, path } = c.req.param();
    checkPath(path);
    await removeFile(asking(c, id), path);
    return c.body(null, 204);
  });
}
