import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { imageWithModules, removeImages } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";

test("after its image is removed, a zygote still serves jobs, and no new zygote starts", async () => {
  const place = await testEngine();
  const image = await imageWithModules(place.image, { mark: `mark = "${randomUUID()}"` });
  const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
  const forks = startForks(place, { mother: labels });
  const limit = AbortSignal.timeout(120_000);
  const open = (env: Record<string, string>) => forks.open(specWith({ image, labels, env }), limit);
  try {
    const first = await open({});
    await removeImages(image);
    await (await open({})).close();
    expect(first.died.aborted).toBe(false);
    await first.close();
    await expect(open({ OTHER: "kind" })).rejects.toMatchObject({
      name: "EngineError",
      code: "image_not_found",
    });
    // The mother still serves jobs of other images.
    await (await forks.open(specWith({ image: place.image, labels }), limit)).close();
  } finally {
    await forks.close();
    await removeImages(image);
  }
});
