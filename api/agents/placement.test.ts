import { describe, expect, test } from "vitest";
import { loadConfig } from "../../shared/config/config.ts";
import type { InputWay } from "../../shared/wire/files.ts";
import type { BreakerState } from "../../shared/wire/health.ts";
import type { ImageLanguages } from "../../shared/wire/leases.ts";
import {
  buildSpec,
  type BuiltImage,
  type Environment,
  environment,
  resolveJobType,
} from "../jobs/environment.ts";
import {
  type AgentReport,
  health,
  isLive,
  languagesThere,
  mayBuild,
  mayRun,
  poolStats,
  servingAgents,
  takesNow,
  turnMessage,
  whyNobodyBuilds,
  whyNobodyRuns,
  whyNobodyTakes,
  whyNoLanguage,
  whyUnavailable,
} from "./placement.ts";

const base = "python:3.13-slim";
const digest = `sha256:${"1".repeat(64)}`;
const breaker = {
  state: "closed",
  failure_count: 0,
  success_count: 0,
  last_failure: null,
} as const;

/** A live agent that may take any job, and has no image. */
const agent = (changes: Partial<AgentReport> = {}): AgentReport => ({
  id: "a",
  name: "a",
  version: "1",
  labels: {},
  accepts: { job_types: null, builds: true },
  slots: 1,
  gpus: { total: 0, free: 0 },
  warm: 0,
  maxSessions: null,
  pool: [],
  engine: { available: true, version: "1", runtimes: [] },
  breaker,
  images: [],
  lastSeenAt: 1000,
  drainingAt: null,
  ...changes,
});
const withBase = agent({ images: [base] });
const withBuilt = agent({ images: [digest] });

/** The environment of a job type, with or without a built image. */
function environmentOf(
  jobType: object,
  { isBuilt = false, production_mode = false } = {},
): Environment {
  const config = loadConfig({ job_types: { t: jobType }, production_mode }, {});
  const image: BuiltImage = {
    jobType: "t",
    tag: "v1.0.0",
    spec: buildSpec(resolveJobType(config, "t")!),
    imageRef: "airlock-t:v1.0.0",
    digest,
    pythonVersion: "3.13.5",
  };
  return environment(config, isBuilt ? [image] : [], "t")!;
}

const plain = environmentOf({});
const built = environmentOf({}, { isBuilt: true });
const labelled = environmentOf({ labels: { gpu: "a100" } });
const inProduction = environmentOf({}, { production_mode: true });

const accepting = (...job_types: string[]) => agent({ accepts: { job_types, builds: true } });
const withoutBuilds = agent({ accepts: { job_types: null, builds: false } });
const gpu = agent({ labels: { gpu: "a100" } });
const giving = (inputs: InputWay, images: string[] = []) =>
  agent({ accepts: { job_types: null, builds: true, inputs }, images });
const [mounting, mountingBase, sending] = [
  giving("mount"),
  giving("mount", [base]),
  giving("frames", [base]),
];
const idleGpu = { ...withoutBuilds, labels: { gpu: "a100" } };

describe("a job may be given to an agent", () => {
  test.each([
    ["that has the base image of a type that is not built", true, withBase, plain, [withBase]],
    ["that lacks it, while nobody has it: it may pull", true, agent(), plain, [agent()]],
    ["that lacks it, while another has it", false, agent(), plain, [agent(), withBase]],
    [
      "that lacks it and mounts files, while the one that has it does not mount files",
      true,
      mounting,
      plain,
      [sending],
    ],
    ["that lacks it, while one that mounts files has it", false, agent(), plain, [mountingBase]],
    ["that has the built image", true, withBuilt, built, [withBuilt]],
    ["that has only the base image of a built type", false, withBase, built, [withBase]],
    ["of a type that is not built, in production mode", false, withBase, inProduction, [withBase]],
    ["without the labels", false, withBase, labelled, [withBase]],
    ["whose operator accepts the type", true, accepting("t"), plain, [agent()]],
    ["whose operator does not, while another's does", false, accepting("u"), plain, [agent()]],
    [
      "whose operator does not, while another's does that lacks the labels",
      true,
      { ...accepting("u"), labels: { gpu: "a100" } },
      labelled,
      [agent()],
    ],
    [
      "whose operator does not, nor anybody's: to refuse it",
      true,
      accepting("u"),
      plain,
      [accepting("v")],
    ],
    [
      "that may pull the image, while it is on the host of one that does not accept the type",
      true,
      agent(),
      plain,
      [agent(), { ...accepting("u"), images: [base] }],
    ],
    [
      "with the labels, among others",
      true,
      agent({ labels: { gpu: "a100", zone: "b" } }),
      labelled,
      // That one has the image, but may not run the job either.
      [withBase],
    ],
  ])("%s: %s", (_what, expected, one, environment, serving) => {
    expect(mayRun(one, environment, serving)).toBe(expected);
  });
});

test.each([
  ["that builds", true, agent(), plain, [withoutBuilds]],
  ["that does not build, while another does", false, withoutBuilds, plain, [agent()]],
  ["that does not build, nor anybody: to refuse it", true, withoutBuilds, plain, [withoutBuilds]],
  ["that does not accept the type, while another does", false, accepting("u"), plain, [agent()]],
  ["without the labels", false, agent(), labelled, []],
  ["without the labels, while none with them builds", false, agent(), labelled, [idleGpu]],
])("a build may be given to an agent %s: %s", (_what, expected, one, environment, serving) => {
  expect(mayBuild(one, environment, serving, false)).toBe(expected);
});

test.each([
  ["without the labels, while none with them builds", true, agent(), [idleGpu]],
  ["without the labels, while one with them builds", false, agent(), [idleGpu, gpu]],
  ["without the labels, while nobody has them", false, agent(), [agent()]],
  ["without the labels that does not build", false, withoutBuilds, [idleGpu]],
  ["with the labels that does not build, while another does", false, idleGpu, [agent()]],
  ["with the labels that does not build, nor anybody", true, idleGpu, [withoutBuilds]],
  ["with the labels that builds", true, gpu, [agent()]],
])(
  "if images are shared, a build may be given to an agent %s: %s",
  (_what, expected, one, serving) => {
    expect(mayBuild(one, labelled, serving, true)).toBe(expected);
  },
);

test("an agent serves while it is live, its engine answers and its breaker is not open", () => {
  const config = loadConfig({ liveness_s: 30, lease_ttl_s: 180 }, {});
  const engine = { available: false, version: null, runtimes: [] };
  const serves = (changes: Partial<AgentReport>, now = 1000) =>
    servingAgents([agent(changes)], config, now).length === 1;
  expect(serves({})).toBe(true);
  expect(serves({}, 31_000)).toBe(true);
  expect(serves({}, 31_001)).toBe(false);
  expect(serves({ engine })).toBe(false);
  expect(serves({ breaker: { ...breaker, state: "half_open" } })).toBe(true);
  expect(serves({ breaker: { ...breaker, state: "open" } })).toBe(false);
});

test("a build that no agent can run has the reason: no engine, or no labels", () => {
  expect(whyNobodyBuilds(plain, [agent()])).toBeUndefined();
  expect(whyNobodyBuilds(plain, [])).toContain("No agent with a working container engine");
  expect(whyNobodyBuilds(labelled, [agent()])).toContain("gpu=a100");
});

const config = loadConfig({ liveness_s: 30, lease_ttl_s: 180 }, {});
const now = 1_000_000;

function agentWithBreaker(state: BreakerState, silentMs = 0): AgentReport {
  const engine = { available: true, version: null, runtimes: [] };
  return agent({ slots: 4, engine, breaker: { ...breaker, state }, lastSeenAt: now - silentMs });
}

test("an agent is live for liveness_s after it last contacted the API", () => {
  expect(isLive(agentWithBreaker("closed", 30_000), config, now)).toBe(true);
  expect(isLive(agentWithBreaker("closed", 30_001), config, now)).toBe(false);
});

const none = new Map<string, number>();
const idle = { pending: 0, running: 0, runningByAgent: none, sessionsByAgent: none };

test("an agent that holds sessions is shown with them", () => {
  const one = { ...agentWithBreaker("closed"), maxSessions: 8 };
  const queue = { ...idle, sessionsByAgent: new Map([[one.id, 3]]) };
  const [shown, other] = poolStats(
    [one, agentWithBreaker("closed")],
    { ...queue },
    config,
    now,
  ).agents;
  expect(shown!.sessions).toEqual({ held: 3, max: 8 });
  expect(other).not.toHaveProperty("sessions");
});

test.each([
  [[], false],
  [["runc"], false],
  [["runc", "runsc"], true],
  [["runsc-kvm"], true],
])("gVisor is available with the runtimes %o: %s", (runtimes, expected) => {
  const engine = { available: true, version: null, runtimes };
  const queue = idle;
  const record = health([{ ...agentWithBreaker("closed"), engine }], queue, config, "1.0.0");
  expect(record.gvisor_available).toBe(expected);
});

test.each<[string, AgentReport, number]>([
  ["idle", agentWithBreaker("closed"), 0],
  ["idle", agentWithBreaker("closed"), 3],
  ["working", agentWithBreaker("closed"), 4],
  ["unwell", agentWithBreaker("open"), 0],
  ["draining", { ...agentWithBreaker("open"), drainingAt: now }, 0],
  ["silent", { ...agentWithBreaker("open", 30_001), drainingAt: now }, 4],
])("an agent is shown as %s", (expected, one, running) => {
  const queue = { ...idle, running, runningByAgent: new Map([[one.id, running]]) };
  expect(poolStats([one], queue, config, now).agents[0]).toMatchObject({
    state: expected,
    running,
  });
});

describe("an execution is kept out", () => {
  const gone = 60_000;
  test.each<[string, AgentReport[], sync: boolean, async: boolean]>([
    ["no agent is known", [], true, false],
    ["one is there", [agentWithBreaker("closed")], false, false],
    ["its breaker is half open", [agentWithBreaker("half_open")], false, false],
    ["its breaker is open", [agentWithBreaker("open")], true, true],
    [
      "one of two has a closed breaker",
      [agentWithBreaker("open"), agentWithBreaker("closed")],
      false,
      false,
    ],
    ["the only one is gone", [agentWithBreaker("closed", gone)], true, false],
    ["the only one is gone with its breaker open", [agentWithBreaker("open", gone)], true, true],
    [
      "the closed one is gone, the open one is there",
      [agentWithBreaker("closed", gone), agentWithBreaker("open")],
      true,
      true,
    ],
    [
      "the open one is gone, the closed one is there",
      [agentWithBreaker("open", gone), agentWithBreaker("closed")],
      false,
      false,
    ],
  ])("%s", (_when, known, sync, async) => {
    expect(whyUnavailable("sync", known, config, now) !== undefined).toBe(sync);
    expect(whyUnavailable("async", known, config, now) !== undefined).toBe(async);
  });
});

const shared: Environment = { ...built, built: { ...built.built!, archiveSha256: "1" } };
const engine = { available: true, version: "1", runtimes: [] };
const missing_images = [{ image: digest, reason: "no route to host" }];
const without = agent({ engine: { ...engine, missing_images } });

describe("why no agent can run a job", () => {
  test.each([
    ["an agent without images, which may pull", plain, [agent()], undefined],
    ["the agent that built it", built, [withBase, withBuilt], undefined],
    ["no agent", plain, [], "No agent is connected. Start one: npm run agent."],
    [
      "no agent with the labels",
      labelled,
      [withBase],
      "No connected agent has the labels that job type t asks for: gpu=a100.",
    ],
    [
      "no agent with the image",
      built,
      [withBase],
      `No connected agent has the image airlock-t:v1.0.0 (${digest}). Connect the agent that built it, or build it again: POST /job-types/t/build.`,
    ],
    [
      "an image on its way",
      shared,
      [withBase, agent({ labels: { zone: "b" } })],
      `Its image airlock-t:v1.0.0 (${digest}) is on its way to 2 agents.`,
    ],
    [
      "an image that one agent has not got, and another may still get",
      shared,
      [without, withBase],
      `Its image airlock-t:v1.0.0 (${digest}) is on its way to 2 agents.`,
    ],
    [
      "an image that no agent has got",
      shared,
      [without],
      `Its image airlock-t:v1.0.0 (${digest}) is on no agent that could run it; a could not get it: no route to host. It is tried again.`,
    ],
    [
      "no built image, in production mode",
      inProduction,
      [withBase],
      "Job type t has no built image for its present configuration: POST /job-types/t/build.",
    ],
  ])("%s", (_what, environment, live, reason) => {
    expect(whyNobodyRuns(environment, live)).toBe(reason);
  });
});

describe("why no agent takes a job now", () => {
  const config = loadConfig({ liveness_s: 30, lease_ttl_s: 180 }, {});
  const gpu = environmentOf({ gpus: 2 });
  const off = { available: false, version: null, runtimes: [] };
  const failed = { ...breaker, state: "open", last_failure: new Date(0).toISOString() } as const;
  test.each([
    ["a vacant agent", plain, agent(), 0, undefined],
    ["no vacant agent", plain, agent(), 1, "Every agent that could run it is busy."],
    [
      "an open breaker",
      plain,
      agent({ breaker: failed }),
      0,
      "The circuit breaker of every agent that could run it is open until 1970-01-01T00:00:30.000Z: their container engines keep failing.",
    ],
    [
      "no engine",
      plain,
      agent({ engine: off }),
      0,
      "The container engine of every agent that could run it is out of reach.",
    ],
    [
      "no free GPU",
      gpu,
      agent({ gpus: { total: 2, free: 1 } }),
      0,
      "The GPUs of every agent that could run it are in use.",
    ],
    [
      "the only agent drained",
      plain,
      agent({ drainingAt: 1 }),
      0,
      "An operator drains every agent that could run it: none takes new jobs.",
    ],
    ["free GPUs", gpu, agent({ gpus: { total: 2, free: 2 } }), 0, undefined],
  ])("%s", (_what, one, only, running, reason) => {
    const held = new Map([["a", running]]);
    expect(whyNobodyTakes(one, [only], config, 1000, null, held)).toBe(reason);
  });

  test("nothing is in the way of a job that one agent takes, whoever else is there", () => {
    const two = { total: 2, free: 2 };
    const able = [
      withBase,
      withBuilt,
      agent({ images: [base], gpus: two, labels: { gpu: "a100" } }),
    ];
    const unable = [
      agent(),
      without,
      mounting,
      idleGpu,
      agent({ breaker: failed, images: [base, digest] }),
      ...[{ engine: off }, { drainingAt: 1 }, { slots: 0 }, { lastSeenAt: -60_000 }].map((one) =>
        agent({ images: [base, digest], gpus: two, ...one }),
      ),
      { ...accepting("u"), images: [base, digest], gpus: two },
    ];
    const all = [...able, ...unable, mountingBase, sending];
    for (const one of [plain, built, shared, labelled, inProduction, gpu])
      for (const inputs of [null, "frames", "mount"] as const) {
        const takes = (each: AgentReport) => takesNow(each, one, inputs, config, 1000);
        expect(unable.filter(takes)).toEqual([]);
        for (const taker of all.filter(takes))
          for (const known of all.map((other) => [other, taker])) {
            const live = known.filter((each) => isLive(each, config, 1000));
            expect(whyUnavailable("sync", known, config, 1000)).toBeUndefined();
            expect(whyNobodyRuns(one, live, { inputs })).toBeUndefined();
            expect(whyNobodyTakes(one, known, config, 1000, inputs)).toBeUndefined();
          }
      }
    const takers = [plain, built, labelled, inProduction, gpu].map((one) =>
      all.findIndex((each) => takesNow(each, one, null, config, 1000)),
    );
    expect(takers).toEqual([0, 1, 2, -1, 2]);
  });

  test("too few GPUs", () => {
    expect(whyNobodyRuns(gpu, [agent({ gpus: { total: 1, free: 1 } })])).toBe(
      "Job type t asks for 2 GPUs, and no connected agent that has its labels gives more than 1 (agent_gpus).",
    );
  });
});

test("a turn tells how many jobs are ahead", () => {
  expect(turnMessage(1)).toBe("Waiting for a worker, at position 1.");
  expect(turnMessage(5)).toBe("Waiting for a worker, at position 5, 4 jobs ahead.");
});

const own = { cpp: { file: "main.cpp", run: ["mine"] } };
const configWithNative = loadConfig(
  { job_types: { native: { base_image: "n:1", languages: own } } },
  {},
);
const native = environment(configWithNative, [], "native")!;
const agentWithLanguages = (languages?: ImageLanguages) => ({
  accepts: { job_types: null, builds: true, ...(languages && { languages }) },
});

test("a type has all languages until an agent has looked into its image, then those that are there and its own", () => {
  const before = languagesThere(native, [
    agentWithLanguages(),
    agentWithLanguages({ "other:1": { bash: "5" } }),
  ]);
  expect(before).toContainEqual({ name: "go", version: null });
  const agents = [
    agentWithLanguages({ "n:1": { perl: "5.40.1" } }),
    agentWithLanguages({ "n:1": { bash: "5.2.37" } }),
  ];
  expect(languagesThere(native, agents)).toEqual([
    { name: "bash", version: "5.2.37" },
    { name: "cpp", version: null },
    { name: "perl", version: "5.40.1" },
  ]);
  const unbuilt = environmentOf({ base_image: "n:1", apt: ["golang-go"] });
  expect(whyNoLanguage(unbuilt, agents, "go")).toBeUndefined();
  expect(whyNoLanguage(native, agents, "bash")).toBeUndefined();
  expect(whyNoLanguage(native, agents, "go")?.known).toBe("python, bash, cpp, perl");
});
