import type { Hono } from "hono";
import { requireBuildLease } from "../../builds/build-posts.ts";
import type { Deps } from "../../deps.ts";
import { readUploadHeaders } from "../../http/body/upload-headers.ts";
import type { AppEnv } from "../../http/context.ts";
import { sendStored } from "../../http/send-file.ts";
import { imageSource, storeImageUpload, storedArchive } from "../../builds/images.ts";

/** Endpoints that pass built images from the agent that built them to the others. */
export function agentImageRoutes(app: Hono<AppEnv>, deps: Deps): void {
  app.put("/builds/:lease_id/image", async (c) => {
    const { lease_id } = c.req.param();
    const build = await requireBuildLease(deps, lease_id, c.get("agentTokenHash"));
    const announced = readUploadHeaders(c);
    const body = c.req.raw.body ?? new Blob([]).stream();
    await storeImageUpload(deps, build, lease_id, body, announced);
    return c.json({});
  });

  app.get("/images/:image", async (c) => c.json(await imageSource(deps, c.req.param("image"))));

  app.get("/images/:image/archive", async (c) => {
    return sendStored(c, await storedArchive(deps, c.req.param("image")));
  });
}
