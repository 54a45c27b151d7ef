import { getLogger, reset } from "@logtape/logtape";
import { describe, expect, it } from "vitest";
import { logLines } from "../../shared/testing/test-file.ts";
import {
  type Asked,
  buildLimits,
  createRuntimeChoice,
  explainRefusal,
  type Policy,
} from "./policy.ts";

const digest = `sha256:${"ab".repeat(32)}`;

const job: Asked = {
  jobType: "science",
  images: [["python:3.13-slim"]],
  networks: ["none"],
  runtime: "runc",
  memory: "512m",
  cpus: 1,
  gpus: 0,
  timeoutS: 30,
  stdoutBytes: 1024,
  artifactBytes: 4096,
};
const build: Asked = {
  isBuild: true,
  jobType: "science",
  images: [["python:3.13-slim"], ["airlock-science:v1.0.0"]],
  networks: [],
  runtime: "runc",
};

const accepts: [Partial<Policy>, Partial<Asked>][] = [
  [{}, { memory: "1000g", gpus: 8, networks: ["bridge"] }],
  [{ agent_job_types: ["default", "science"] }, {}],
  [{ agent_job_types: ["sci*"] }, {}],
  [{ agent_images: ["python:3.13-slim"] }, {}],
  [{ agent_images: ["python:3.*-slim"] }, {}],
  [{ agent_images: ["registry.example/*/tool:*"] }, { images: [["registry.example/team/tool:1"]] }],
  [{ agent_images: [digest] }, { images: [[digest, "airlock-science:latest"]] }],
  [{ agent_images: ["airlock-*"] }, { images: [[digest, "airlock-science:latest"]] }],
  [{ agent_networks: ["none"] }, {}],
  [{ agent_runtimes: ["runc"] }, {}],
  [{ agent_runtimes: ["runsc*"] }, { runtime: "runsc-kvm" }],
  [{ agent_max_memory: "512m" }, {}],
  [{ agent_max_memory: "1g" }, { memory: "1024M" }],
  [{ agent_max_cpus: 1 }, {}],
  [{ agent_max_gpus: 0 }, {}],
  [{ agent_max_timeout: 30 }, {}],
  [{ agent_max_stdout_bytes: 1024, agent_max_artifact_bytes: 4096 }, {}],
  [{ agent_builds: false }, {}],
];

const refuses: [Partial<Policy>, Partial<Asked>, string][] = [
  [{ agent_job_types: ["sci"] }, {}, "agent_job_types leaves out science"],
  [{ agent_job_types: [] }, {}, "agent_job_types leaves out science"],
  [{ agent_images: ["python:3.13"] }, {}, "agent_images leaves out python:3.13-slim"],
  [{ agent_images: ["python:3.13.slim"] }, {}, "agent_images leaves out python:3.13-slim"],
  [{ agent_images: ["ython*"] }, {}, "agent_images leaves out python:3.13-slim"],
  [
    { agent_images: ["python:*"] },
    { images: [["python:5000/evil:1"]] },
    "agent_images leaves out python:5000/evil:1",
  ],
  [
    { agent_images: ["airlock-*"] },
    { images: [[digest, "private:1"]] },
    `agent_images leaves out ${digest}, private:1`,
  ],
  [
    { agent_images: ["*"] },
    { images: [[]] },
    "agent_images leaves out an image that is not on the host",
  ],
  [{ agent_runtimes: ["runsc"] }, {}, "agent_runtimes leaves out runc"],
];

const builds: [Partial<Policy>, string | undefined][] = [
  [{}, undefined],
  [{ agent_max_memory: "64m", agent_max_cpus: 0.1, agent_max_timeout: 1 }, undefined],
  [{ agent_images: ["python:3.13-slim", "airlock-*"] }, undefined],
  [{ agent_builds: false }, "agent_builds is false"],
  [{ agent_images: ["airlock-*"] }, "agent_images leaves out python:3.13-slim"],
  [{ agent_images: ["python:*"] }, "agent_images leaves out airlock-science:v1.0.0"],
  [{ agent_networks: [] }, undefined],
  [{ agent_runtimes: ["runsc"] }, "agent_runtimes leaves out runc"],
];

const defaults = { agent_builds: true, max_built_bytes: 20 * 1024 ** 3 };
const withDefaults = (policy: Partial<Policy>): Policy => ({ ...defaults, ...policy });

describe("a policy", () => {
  it.each(accepts)("%o accepts %o", (policy, asked) => {
    expect(explainRefusal(withDefaults(policy), { ...job, ...asked })).toBeUndefined();
  });

  it.each(refuses)("%o with %o: %s", (policy, asked, refusal) => {
    expect(explainRefusal(withDefaults(policy), { ...job, ...asked })).toBe(refusal);
  });

  it("allows builds of tenants' job types only if it says so", () => {
    const ofTenant = { ...build, isOfTenant: true };
    expect(explainRefusal(withDefaults({}), ofTenant)).toBe("agent_tenant_builds is false");
    expect(explainRefusal(withDefaults({ agent_tenant_builds: true }), ofTenant)).toBeUndefined();
    const none = withDefaults({ agent_tenant_builds: true, agent_builds: false });
    expect(explainRefusal(none, ofTenant)).toBe("agent_builds is false");
  });

  it.each(builds)("%o on a build: %s", (policy, refusal) => {
    expect(explainRefusal(withDefaults(policy), build)).toBe(refusal);
  });
});

it("a build is limited to the memory and CPUs that the operator allows one job", () => {
  const most = { agent_max_memory: "8g", agent_max_cpus: 1.5, max_built_bytes: 7 };
  const always = { pids: 1024, diskBytes: 7, tenantBytes: 20 * 1024 ** 3 };
  expect(buildLimits(withDefaults(most))).toEqual({
    memoryBytes: 8 * 1024 ** 3,
    cpus: 1.5,
    ...always,
  });
  const unset = { memoryBytes: 2 * 1024 ** 3, cpus: 1, ...always };
  expect(buildLimits(withDefaults({ max_built_bytes: 7 }))).toEqual(unset);
});

it("strict takes the runtime that it requires where the engine has it", () => {
  const log = getLogger(["airlock", "agent"]);
  const choose = createRuntimeChoice({ runtime: "runsc", strict: true }, log);
  expect(choose(["runc", "runsc"])).toBe("runsc");
});

it("the engine's default stands in for a runtime that it lacks, with one warning", async () => {
  const lines = await logLines("warning");
  const log = getLogger(["airlock", "agent"]);
  const choose = createRuntimeChoice({ runtime: "runsc", strict: false }, log);
  expect([choose(["runc"]), choose(["runc"])]).toEqual([null, null]);
  expect(lines).toEqual(["the engine lacks the runtime runsc: its default is used instead"]);
  await reset();
});
