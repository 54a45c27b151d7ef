import { randomUUID } from "node:crypto";
import { getLogger } from "@logtape/logtape";
import { expect, test } from "vitest";
import { openOn } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { createLanguageFinder } from "./languages.ts";

test("an image is looked into once, when no job runs, for the languages that it has and their versions", async () => {
  const place = await testEngine();
  const labels = { agentId: randomUUID(), agentName: "sandbox-tests", leaseId: null };
  const spec = specWith({ image: place.image, labels });
  const request = { jobType: "default", tenant: "", spec, packages: null, imports: [], files: [] };
  const changes = createChangeSignal();
  let free = 1;
  let opened = 0;
  const finder = createLanguageFinder({
    sandboxes: {
      acquire: (_request, signal) => {
        opened += 1;
        return openOn(place, spec, signal);
      },
      giveBack: (sandbox) => sandbox.close(),
    },
    leases: { free: () => free, size: 2 },
    changes,
    log: getLogger(["airlock", "agent"]),
  });
  finder.lookInto("base:1", request);
  finder.lookInto("base:1", request);
  const found = changes.waitUntil(() => "base:1" in finder.known());
  expect(opened).toBe(0);
  free = 2;
  changes.notify();
  await found;
  await finder.close();
  expect(opened).toBe(1);
  expect(finder.known()["base:1"]).toEqual({
    bash: expect.stringMatching(/^5\.\d+\.\d+$/) as string,
    perl: expect.stringMatching(/^5\.\d+\.\d+$/) as string,
  });
});
