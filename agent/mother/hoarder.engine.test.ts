import { expect, test } from "vitest";
import { testEngine } from "../sandbox/testing/engine.ts";
import { deriveImage, removeImages } from "../sandbox/testing/raw-engine.ts";
import { runCode } from "../sandbox/testing/run-code.ts";

/** A module that keeps a copy of every descriptor which its process has when it forks. */
const hoarder = `
import os
def keep_all():
    for name in os.listdir("/proc/self/fd"):
        try: os.dup(int(name))
        except OSError: pass
os.register_at_fork(before=keep_all)`;

test("jobs end, and others run, where a preload keeps their streams open", async () => {
  const place = await testEngine();
  const encoded = Buffer.from(hoarder).toString("base64");
  const folder = "$(python3 -c 'import site; print(site.getsitepackages()[0])')";
  const hoarding = await deriveImage(
    place.image,
    `mkdir -p ${folder} && echo ${encoded} | base64 -d > ${folder}/hoarder.py`,
  );
  try {
    const settings = { spec: { image: hoarding, preload: ["hoarder"] }, backend: "zygote" };
    for (let jobs = 0; jobs < 2; jobs++) {
      const { end, out } = await runCode(place, "print('hi')", settings);
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "hi\n" });
    }
  } finally {
    await removeImages(hoarding);
  }
});
