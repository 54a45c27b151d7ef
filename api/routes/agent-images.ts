import type { Hono } from "hono";
import { artifactHeaders } from "../../shared/lease.ts";
import { leasedBuild } from "../build-posts.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "../http/context.ts";
import { imageSource, imageUploaded, openArchive } from "../images.ts";

/** Built images on their way from the agent that made them to the others. */
export function agentImageRoutes(app: Hono<AppEnv>, deps: Deps): void {
  app.put("/builds/:lease_id/image", async (c) => {
    const { lease_id } = c.req.param();
    const build = await leasedBuild(deps, lease_id, c.get("agentTokenHash"));
    const sizeBytes = Number(c.req.header(artifactHeaders.size));
    const sha256 = c.req.header(artifactHeaders.sha256) ?? "";
    if (!Number.isSafeInteger(sizeBytes) || !/^[0-9a-f]{64}$/.test(sha256)) {
      throw new AppError(
        "invalid_request",
        `Send ${artifactHeaders.size} and ${artifactHeaders.sha256} (64 hex digits).`,
      );
    }
    const body = c.req.raw.body ?? new Blob([]).stream();
    await imageUploaded(deps, build, lease_id, body, { sizeBytes, sha256 });
    return c.json({});
  });

  app.get("/images/:image", async (c) => c.json(await imageSource(deps, c.req.param("image"))));

  app.get("/images/:image/archive", async (c) => {
    const { body, sizeBytes } = await openArchive(deps, c.req.param("image"));
    return c.body(body, 200, {
      "Content-Type": "application/octet-stream",
      "Content-Length": String(sizeBytes),
      "Cache-Control": "no-transform",
    });
  });
}
