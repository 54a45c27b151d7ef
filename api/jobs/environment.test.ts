import { describe, expect, test } from "vitest";
import { loadConfig } from "../../shared/config/config.ts";
import { canonicalJson } from "../../shared/json.ts";
import { JobTypeDefinition, OwnJobType } from "../../shared/wire/job-types.ts";
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
  specOf,
  toJobTypeView,
  whyTooMuch,
  withOwnTypes,
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

describe("a job type that a tenant has made", () => {
  const name = "acme.t";
  const own = (definition: object) => ({
    name,
    tenant: "acme",
    definition: OwnJobType.parse(definition),
  });
  const made = (given: Record<string, unknown>, definition: object) =>
    resolveJobType(withOwnTypes(config(given), [own(definition)]), name);

  test("has the steps of what it extends and of its preset, then its own, behind which no command runs", () => {
    const report = { apt: ["jq"], requirements: ["six"], dockerfile: "FROM own:1\nRUN make\n" };
    const asked = { extends: "report", preset: "documents", apt: ["tree"], npm: ["marked@15"] };
    const type = made({ job_types: { report } }, { ...asked, requirements: ["attrs"] })!;
    const steps = stepsOf(specOf(type));
    expect(steps.map((step) => ("packages" in step ? step.kind : "line"))).toEqual([
      "apt",
      "pip",
      "line",
      "apt",
      "pip",
      "apt",
      "pip",
      "npm",
    ]);
    expect(steps.slice(-3)).toEqual([
      { kind: "apt", packages: ["tree"], own: true },
      { kind: "pip", packages: ["attrs"], own: true },
      { kind: "npm", packages: ["marked@15"], own: true },
    ]);
    expect(steps.slice(0, -3).some((step) => "own" in step)).toBe(false);
    expect(type.base_image).toBe("own:1");
    expect(type.apt).toEqual(expect.arrayContaining(["jq", "tree"]));
    const languages = stepsOf(specOf(made({}, { preset: "languages", requirements: ["six"] })!));
    expect(languages.at(-1)).toEqual({ kind: "pip", packages: ["six"], own: true });
    expect(languages.at(-2)).toMatchObject({ kind: "run" });
  });

  test("never has more than what it extends, which also changes later, and preloads nothing of its own", () => {
    const base = { memory_limit: "1g", cpu_limit: 2, timeout: 20, network: "bridge", pids: 64 };
    const asked = { extends: "big", memory_limit: "768m", cpu_limit: 1.5, timeout: 10 };
    const given = (changes: object) => ({ job_types: { big: { ...base, ...changes } } });
    const type = made(given({ labels: { gpu: "a" }, gpus: 1, env: { A: "1" } }), {
      ...asked,
      env: { B: "2" },
      preset: "languages",
    });
    expect(type).toMatchObject({ memory_limit: "768m", cpu_limit: 1.5, timeout: 10, pids: 64 });
    expect(type).toMatchObject({ network: "bridge", labels: { gpu: "a" }, gpus: 1, preload: [] });
    expect([type!.env, type!.tenants]).toEqual([{ A: "1", B: "2" }, ["acme"]]);
    expect(made(given({ memory_limit: "512m", cpu_limit: 1, timeout: 5 }), asked)).toMatchObject({
      memory_limit: "512m",
      cpu_limit: 1,
      timeout: 5,
    });
    expect(made({ job_types: { big: { tenants: ["other"] } } }, asked)).toBeUndefined();
    expect(made({}, asked)).toBeUndefined();
    expect(made({ job_types: { [name]: { pids: 99 } } }, {})?.made).toBeUndefined();
  });

  test.each([
    [{ memory_limit: "513m" }, "memory_limit: must be at most 512m, the limit of job type default"],
    [{ cpu_limit: 1.1 }, "cpu_limit: must be at most 1, the limit of job type default"],
    [{ timeout: 31 }, "timeout: must be at most 30, the limit of job type default"],
    [{ extends: "nobodys" }, "extends: no job type of the configuration is named nobodys"],
    [{ extends: "closed" }, "extends: no job type of the configuration is named closed"],
    [{ extends: "acme.t" }, "extends: no job type of the configuration is named acme.t"],
    [{ memory_limit: "512m", cpu_limit: 1, timeout: 30 }, ""],
  ])("%j asks for too much: %s", (asked, why) => {
    const job_types = { closed: { tenants: ["other"] } };
    const errors = whyTooMuch(config({ job_types }), own(asked));
    expect(errors.map(({ path, message }) => `${path}: ${message}`).join()).toBe(why);
  });

  test.each([
    ["apt", ["-o=x", "jq-", "jq;id", "a b", "./x.deb", "jq=$(id)"]],
    [
      "requirements",
      ["-r x", "--pre", "x @ https://h/x.whl", "./x", "x.whl", "git+https://h/x", "a\nb"],
    ],
    ["npm", ["-g", "https://h/x.tgz", "git+ssh://h/x", "../x", "x@file:y", "a;b"]],
  ])("%s takes names of packages alone", (key, texts) => {
    for (const text of texts) {
      const found = OwnJobType.safeParse({ [key]: [text] });
      expect([text, found.error?.issues[0]?.path]).toEqual([text, [key, 0]]);
    }
    expect(OwnJobType.safeParse({ [key]: Array.from({ length: 101 }, () => "a1") }).success).toBe(
      false,
    );
  });

  test("has 64 KiB at most", () => {
    const run = Array.from({ length: 20 }, () => "a".repeat(4096));
    const languages = { a: { file: "a", run } };
    expect(OwnJobType.safeParse({ languages }).error?.issues).toMatchObject([
      { path: [], message: "must have at most 65536 characters" },
    ]);
  });

  test.each([
    "LD_PRELOAD",
    "ld_library_path",
    "PATH",
    "PYTHONPATH",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "SSLKEYLOGFILE",
    "PIP_LOG",
    "XDG_CONFIG_DIRS",
    "NVIDIA_DRIVER_CAPABILITIES",
    "AMD_VISIBLE_DEVICES",
  ])("cannot set %s, which programs of root read", (variable) => {
    expect(OwnJobType.safeParse({ env: { [variable]: "/opt/airlock/x" } }).success).toBe(false);
  });

  test("has no other key of the configuration's job types", () => {
    const known = new Set(Object.keys(OwnJobType.shape));
    const others = Object.keys(JobTypeDefinition.shape).filter((key) => !known.has(key));
    expect(others).toEqual(
      expect.arrayContaining(["dockerfile", "base_image", "network", "labels"]),
    );
    expect(others.filter((key) => OwnJobType.safeParse({ [key]: "1" }).success)).toEqual([]);
  });
});
