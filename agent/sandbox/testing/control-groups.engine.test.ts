import { expect, test, vi } from "vitest";
import { controlGroupsOf } from "./control-groups.ts";
import { testEngine } from "./engine.ts";
import { rawEngine } from "./raw-engine.ts";

test("a container's control group is found while it runs and gone after it, on cgroup v1 and v2", async () => {
  const { image } = await testEngine();
  const container = await rawEngine.createContainer({
    Image: image,
    Entrypoint: ["sleep"],
    Cmd: ["600"],
  });
  const marks = new Set([container.id]);
  try {
    await container.start();
    expect(controlGroupsOf(marks)).not.toEqual([]);
  } finally {
    await container.remove({ force: true, v: true });
  }
  await vi.waitFor(() => expect(controlGroupsOf(marks)).toEqual([]), { timeout: 60_000 });
});
