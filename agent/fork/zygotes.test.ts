import { expect, test } from "vitest";
import { specWith } from "../sandbox/testing/report.ts";
import { createZygotes } from "./zygotes.ts";
import type { Mother, Zygote } from "./mother.ts";

test("a zygote that ended as soon as it was ready serves no second job", async () => {
  let started = 0;
  const mother = {
    machine: "x86_64",
    isRetired: () => false,
    startZygote: (): Promise<Zygote> => {
      started += 1;
      const died = AbortSignal.abort(new Error("the zygote ended"));
      return Promise.resolve({
        died,
        open: () => Promise.reject(died.reason),
        retire: () => {},
      } as never);
    },
  } as Partial<Mother> as Mother;
  const zygotes = createZygotes({
    engine: { imageId: async () => "sha256:1", imageEnvironment: async () => [] } as never,
    mother: async () => mother,
    rootfs: { prepare: async () => "root", forget: () => {}, close: async () => {} },
  });
  await zygotes.of(specWith());
  await zygotes.of(specWith());
  expect(started).toBe(2);
});
