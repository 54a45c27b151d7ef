import { describe, expect, test } from "vitest";
import { loadConfig } from "../../shared/config/config.ts";
import { canonicalJson } from "../../shared/json.ts";
import {
  buildSpec,
  type BuiltImage,
  digestOf,
  environment,
  environments,
  identityOf,
  imageOf,
  pinnedRef,
  resolveJobType,
  stepsOf,
  toJobTypeView,
} from "./environment.ts";

const config = (given: Record<string, unknown> = {}) => loadConfig(given, {});
const science = { requirements: ["numpy"] };
const digest = `sha256:${"1".repeat(64)}`;

/** A build of a job type with its present configuration. */
function builtOf(given: Record<string, unknown>, name: string): BuiltImage {
  const jobType = resolveJobType(config(given), name);
  if (!jobType) throw new Error(`no ${name}`);
  return {
    jobType: name,
    tag: "latest",
    spec: buildSpec(jobType),
    imageRef: `airlock-${name}:latest`,
    digest,
    pythonVersion: "3.13.5",
  };
}

test("there is a default job type without any configuration, and it is the first", () => {
  const names = (given: object) =>
    environments(config({ ...given }), []).map(({ jobType }) => jobType.name);
  expect(names({})).toEqual(["default"]);
  expect(names({ job_types: { science, default: {} } })).toEqual(["default", "science"]);
  expect(environment(config(), [], "science")).toBeUndefined();
  expect(environment(config(), [], "__proto__")).toBeUndefined();
});

describe("the image of a job type", () => {
  const given = { job_types: { science } };

  test("is its base image until it is built, and then the built one", () => {
    const image = (built: BuiltImage[]) => imageOf(environment(config(given), built, "science")!);
    expect(image([])).toBe("python:3.13-slim");
    expect(image([builtOf(given, "science")])).toBe(digest);
    expect(image([builtOf({ job_types: { other: science } }, "other")])).toBe("python:3.13-slim");
  });

  test.each([
    { ...science, requirements: ["numpy", "pandas"] },
    { ...science, base_image: "other:1" },
    { ...science, python_version: "3.12" },
  ])("is not the built one if that one was built from something else: %j", (changed) => {
    const old = builtOf(given, "science");
    const now = environment(config({ job_types: { science: changed } }), [old], "science");
    expect(now?.built).toBeUndefined();
  });

  test.each([
    [{ requirements: ["numpy"] }, '{"base_image":"python:3.13-slim","requirements":["numpy"]}'],
    [{ apt: ["jq"] }, '{"apt":["jq"],"base_image":"python:3.13-slim","requirements":[]}'],
    [{ npm: ["a@1"] }, '{"base_image":"python:3.13-slim","npm":["a@1"],"requirements":[]}'],
  ])(
    "is of the specification that counted before, and of newer keys with a value: %j",
    (own, spec) => {
      expect(buildSpec(resolveJobType(config({ job_types: { t: own } }), "t")!)).toBe(spec);
    },
  );

  test("is built in steps, in one order; a job type with steps does not run before", () => {
    const own = { npm: ["a"], requirements: ["numpy"], apt: ["jq", "gcc"] };
    const { jobType, mustBeBuilt } = environment(config({ job_types: { t: own } }), [], "t")!;
    expect(stepsOf(jobType)).toEqual([
      { kind: "apt", packages: ["jq", "gcc"] },
      { kind: "pip", packages: ["numpy"] },
      { kind: "npm", packages: ["a"] },
    ]);
    const plain = environment(config({ job_types: { t: {} } }), [], "t")!;
    expect([stepsOf(plain.jobType), mustBeBuilt, plain.mustBeBuilt]).toEqual([[], true, false]);
  });

  test.each([{ memory_limit: "1g" }, { env: { A: "1" } }, { network: "bridge" }, { timeout: 5 }])(
    "stays the built one if the change does not affect it: %j",
    (changed) => {
      const job_types = { science: { ...science, ...changed } };
      const now = environment(config({ job_types }), [builtOf(given, "science")], "science");
      expect(now?.built?.digest).toBe(digest);
    },
  );
});

describe("a preset", () => {
  const typeOf = (own: object) =>
    resolveJobType(config({ job_types: { t: { preset: "science", ...own } } }), "t")!;

  test("gives a job type its packages and settings, and the same image as the keys would", () => {
    const { preset, apt, requirements, preload, memory_limit, env, dockerfile } = typeOf({});
    expect({ preset, preload, memory_limit }).toEqual({
      preset: "science",
      preload: ["numpy", "pandas", "matplotlib.pyplot"],
      memory_limit: "1g",
    });
    const same = config({ job_types: { t: { apt, requirements, dockerfile } } });
    expect(buildSpec(typeOf({ env: { A: "1" } }))).toBe(buildSpec(resolveJobType(same, "t")!));
    expect(env["MATPLOTLIBRC"]).toBe("/etc/matplotlibrc");
  });

  test("is extended by a job type's own lists and tables, and replaced by its other values", () => {
    const own = typeOf({
      apt: ["graphviz"],
      requirements: ["NumPy==2.4.1"],
      memory_limit: "4g",
      preload: "auto",
      env: { A: "1", MATPLOTLIBRC: "/code/mine" },
      dockerfile: "RUN true\n",
    });
    expect(own.apt).toEqual(["graphviz", ...typeOf({}).apt]);
    expect(own.requirements.filter((one) => /^numpy/i.test(one))).toEqual(["NumPy==2.4.1"]);
    expect(own.requirements.length).toBe(typeOf({}).requirements.length);
    expect(own).toMatchObject({ memory_limit: "4g", preload: "auto" });
    expect(own.env).toEqual({ A: "1", MATPLOTLIBRC: "/code/mine" });
    expect(own.dockerfile).toMatch(/^RUN true\n[^]*COPY <<'END' \/etc\/matplotlibrc\n/);
  });

  test.each(["documents", "languages"])("%s is a valid job type", (preset) => {
    expect(typeOf({ preset }).apt.length).toBeGreaterThan(3);
  });
});

test("a pinned reference contains the digest", () => {
  expect(pinnedRef("science", digest)).toBe(`science@${digest}`);
  expect(digestOf(`science@${digest}`)).toBe(digest);
});

const pythonOf = (jobType: object, given: object = {}) => {
  const all = config({ job_types: { t: jobType }, ...given });
  return toJobTypeView(environment(all, [], "t")!, new Set(), [], all).python_version;
};

describe("python_version", () => {
  test.each([
    [{ python_version: "3.12" }, {}, "3.12"],
    [{ python_version: "3.12", base_image: "mine:1" }, {}, "3.12"],
    [{ base_image: "registry.example/python:3.10-alpine" }, {}, "3.10"],
    [{ base_image: "mine:1" }, {}, "3.13"],
    [{}, { base_image: "python:3.11.4" }, "3.11.4"],
    [{}, { base_image: "cpython:3.11" }, "unknown"],
  ])("of %j with %j is %s", (jobType, given, version) => {
    expect(pythonOf(jobType, given)).toBe(version);
  });

  test("of a built image is the one in the image, not the configured one", () => {
    const given = { job_types: { t: { python_version: "3.12" } } };
    const all = config(given);
    const view = toJobTypeView(environment(all, [builtOf(given, "t")], "t")!, new Set(), [], all);
    expect(view.python_version).toBe("3.13.5");
  });
});

const baseOf = (jobType: object) =>
  resolveJobType(config({ base_image: "own:1", job_types: { t: jobType } }), "t")?.base_image;

test("the base image is the job type's, else its Python's, else the configured one", () => {
  expect(baseOf({})).toBe("own:1");
  expect(baseOf({ python_version: "3.12" })).toBe("python:3.12-slim");
  expect(baseOf({ python_version: "3.12", base_image: "mine:1" })).toBe("mine:1");
});

const request = {
  code: "print(1)",
  input_data: { b: 1, a: [2] },
  timeout: undefined,
  startup_timeout: 60,
  job_type: "default",
  requirements: [],
  idempotency_key: "k",
};

test("a submission without newer fields has the text that the first version stored the hash of", () => {
  expect(canonicalJson(identityOf(request))).toBe(
    '["print(1)",{"a":[2],"b":1},null,60,"default",[]]',
  );
});

test("a rerun has another text than the same submission, and than a rerun of another job", () => {
  const of = (parentExecutionId: string) =>
    canonicalJson(identityOf(request, { parentExecutionId, relationship: "rerun" }));
  expect(new Set([canonicalJson(identityOf(request)), of("a"), of("b")]).size).toBe(3);
});
