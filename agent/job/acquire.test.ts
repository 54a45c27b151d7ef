import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { JobType } from "../../shared/wire/job-type.ts";
import { AgentIdentity } from "../../shared/wire/lease.ts";
import { containerRequest } from "./acquire.ts";

const agent = AgentIdentity.parse({
  id: randomUUID(),
  name: "a",
  version: "0",
  labels: {},
  accepts: { job_types: null, builds: true },
});
const deps = { agent, seccomp: true, requirements: { allowed: false } };

test.each([
  [{}, 1],
  [{ reuse: 50 }, 50],
  [{ reuse: 50, network: "bridge" }, 1],
  [{ reuse: 50, gpus: 1 }, 1],
])("a container for jobs of %j serves %i", (changes, jobs) => {
  const whole = { name: "quick", base_image: "python", timeout: 30, ...changes };
  expect(containerRequest(deps, JobType.parse(whole), "sha256:0", null).spec.reuse).toBe(jobs);
});
