import { parseBytes } from "../../shared/bytes.ts";
import type { Config } from "../../shared/config/config.ts";
import { type BuildStep, parseDockerfile } from "../../shared/dockerfile.ts";
import { canonicalJson } from "../../shared/json.ts";
import { type Language, languages } from "../../shared/languages.ts";
import { packageName, presetWith } from "../../shared/presets.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { Tool } from "../../shared/wire/executions.ts";
import type { InputWay } from "../../shared/wire/files.ts";
import {
  type BuildSpec,
  ConfiguredJobType,
  type JobType,
  JobTypeDefinition,
  type JobTypeView,
  type LeasedJobType,
  type OwnJobType,
} from "../../shared/wire/job-types.ts";
import type { LeasedJob } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ExecuteRequest } from "../../shared/wire/submissions.ts";

/** A build that has succeeded. */
export interface BuiltImage {
  jobType: string;
  tag: string;
  spec: string;
  imageRef: string;
  /** `sha256:…` */
  digest: string;
  pythonVersion: string;
  /** Set if the artifact store or a registry has the image; other agents get it from there. */
  archiveSha256?: string | null;
  manifestDigest?: string | null;
}

/** A job type and the image that its jobs run on now. */
export interface Environment {
  jobType: JobType;
  /** The last build with the type's present configuration, if there is one. */
  built: BuiltImage | undefined;
  /** Whether jobs of this type may run on a built image only. */
  mustBeBuilt: boolean;
  /** Whether the first job requests the build. */
  buildsItself: boolean;
}

/** The environments of every job type, "default" first. */
export function environments(config: Config, built: BuiltImage[]): Environment[] {
  const names = new Set([defaultJobType, ...Object.keys(config.job_types)]);
  return [...names].flatMap((name) => environment(config, built, name) ?? []);
}

/** The environment of one job type; undefined when none has that name. */
export function environment(
  config: Config,
  built: BuiltImage[],
  name: string,
): Environment | undefined {
  const jobType = resolveJobType(config, name);
  if (!jobType) return undefined;
  const { production_mode, auto_build } = config;
  const isMade = stepsOf(specOf(jobType)).length > 0;
  return {
    jobType,
    built: built.find((image) => image.jobType === name && image.spec === buildSpec(jobType)),
    mustBeBuilt: production_mode || isMade,
    buildsItself: isMade && auto_build && !production_mode,
  };
}

/** Whether jobs of this type wait for an image that a build makes by itself. */
export function awaitsImage({ built, buildsItself }: Environment): boolean {
  return built === undefined && buildsItself;
}

/** The open build of a type's present configuration. */
export function openBuildOf<B extends { jobType: string; spec: string }>(
  { jobType }: Environment,
  open: B[],
): B | undefined {
  const own = open.filter((build) => build.jobType === jobType.name);
  return own.length > 0 ? own.find(({ spec }) => spec === buildSpec(jobType)) : undefined;
}

/** What the image of a job type is made of. */
export function specOf({ made, base_image, requirements, apt, npm, dockerfile }: JobType) {
  return made?.spec ?? ofParts({ base_image, requirements, apt, npm, dockerfile });
}

type Parts = Pick<JobType, "base_image" | "requirements" | "apt" | "npm" | "dockerfile">;

const ofParts = ({ base_image, requirements, apt, npm, dockerfile }: Parts): BuildSpec => ({
  base_image,
  requirements,
  ...(apt.length > 0 && { apt }),
  ...(npm.length > 0 && { npm }),
  ...(dockerfile !== undefined && { dockerfile }),
});

export const buildSpec = (jobType: JobType): string => canonicalJson(specOf(jobType));

/**
 * The steps of a build, in order: none if the image is the base image. A tenant's packages come last, so that no
 * command of root runs behind them.
 */
export function stepsOf(spec: BuildSpec): BuildStep[] {
  const { apt = [], requirements, npm = [], dockerfile, below = [], tenant } = spec;
  const own = tenant !== undefined && { own: true as const };
  const all: BuildStep[] = [
    { kind: "apt", packages: apt, ...own },
    { kind: "pip", packages: requirements, ...own },
    { kind: "npm", packages: npm, ...own },
    ...(dockerfile === undefined ? [] : parseDockerfile(dockerfile).steps),
  ];
  return [
    ...below.flatMap(stepsOf),
    ...all.filter((step) => !("packages" in step) || step.packages.length > 0),
  ];
}

/** The image of a job: the digest of the built image, else the name of the base image. */
export function imageOf({ jobType, built }: Environment): string {
  return built?.digest ?? jobType.base_image;
}

/** The reference that pins an image in records: docs/contract.md 4.12. */
export function pinnedRef(jobType: string, digest: string): string {
  return `${jobType}@${digest}`;
}

/** The digest in a pinned reference. */
export function digestOf(jobRef: string): string {
  return jobRef.slice(jobRef.indexOf("@") + 1);
}

/**
 * @param present Images that the engines of live agents have.
 * @param languages Those beside Python.
 */
export function toJobTypeView(
  environment: Environment,
  present: ReadonlySet<string>,
  languages: JobTypeView["languages"],
  config: Config,
): JobTypeView {
  const { jobType, built, mustBeBuilt } = environment;
  const python = built?.pythonVersion ?? expectedPython(jobType, config);
  return {
    name: jobType.name,
    preset: jobType.preset ?? null,
    requirements: jobType.requirements,
    apt: jobType.apt,
    npm: jobType.npm,
    python_version: python,
    memory_limit: jobType.memory_limit,
    cpu_limit: jobType.cpu_limit,
    pids: jobType.pids,
    timeout: jobType.timeout,
    image_exists: (built !== undefined || !mustBeBuilt) && present.has(imageOf(environment)),
    languages: [{ name: "python", version: python === "unknown" ? null : python }, ...languages],
  };
}

/** The Python version by the configuration or by the image's name, before a build has looked into the image. */
function expectedPython({ python_version, base_image }: JobType, config: Config): string {
  return python_version ?? pythonInName(base_image) ?? pythonInName(config.base_image) ?? "unknown";
}

function pythonInName(image: string): string | undefined {
  return /(?:^|\/)python:(3\.\d+(?:\.\d+)?)/.exec(image)?.[1];
}

/** The job type of requests that name none; `[job_types.default]` overrides it. */
export const defaultJobType = "default";

/** A job type with the configuration's defaults filled in; undefined when none has that name. */
export function resolveJobType(config: Config, name: string): JobType | undefined {
  const definition = definitionOf(config, name);
  if (!definition) return undefined;
  return {
    ...definition,
    name,
    base_image:
      definition.base_image ??
      (definition.dockerfile && parseDockerfile(definition.dockerfile).from) ??
      officialImage(definition) ??
      config.base_image,
    timeout: Math.min(definition.timeout ?? config.default_timeout, config.max_timeout),
  };
}

/** A job type that a tenant has made, as the store keeps it. */
export interface OwnRow {
  name: string;
  tenant: string;
  definition: OwnJobType;
}

/** The job type of the configuration that a tenant's extends: never a tenant's own. */
function extended(config: Config, { tenant, definition }: Omit<OwnRow, "name">) {
  const base = resolveJobType(config, definition.extends);
  return base && isFor(tenant, base) ? base : undefined;
}

/** Why a tenant may not make a job type: for each key that asks for more than the operator's. */
export function whyTooMuch(config: Config, own: Omit<OwnRow, "name">) {
  const base = extended(config, own);
  const { memory_limit, cpu_limit, timeout, extends: of } = own.definition;
  if (!base)
    return [{ path: "extends", message: `no job type of the configuration is named ${of}` }];
  const isMore = {
    memory_limit:
      memory_limit !== undefined && parseBytes(memory_limit) > parseBytes(base.memory_limit),
    cpu_limit: cpu_limit !== undefined && cpu_limit > base.cpu_limit,
    timeout: timeout !== undefined && timeout > base.timeout,
  };
  return (["memory_limit", "cpu_limit", "timeout"] as const)
    .filter((path) => isMore[path])
    .map((path) => ({
      path,
      message: `must be at most ${base[path]}, the limit of job type ${of}`,
    }));
}

/**
 * A tenant's job type as the configuration would have it; undefined if what it extends is gone. It never has more than
 * that, also when the operator gives less later. Nothing is preloaded but what the operator or the preset names: a
 * zygote, which is root in its namespace, imports no package of a tenant.
 */
function definedBy(config: Config, { tenant, definition: own }: OwnRow) {
  const base = extended(config, { tenant, definition: own });
  if (!base) return undefined;
  const {
    preset,
    memory_limit = base.memory_limit,
    cpu_limit = Infinity,
    timeout = Infinity,
  } = own;
  const { dockerfile, ...added } = ofPreset(preset);
  const lines = dockerfile && `USER root\nWORKDIR /\n${dockerfile}`;
  const { base_image } = base;
  const below = [specOf(base), ofParts({ ...added, base_image, dockerfile: lines })];
  const { apt, requirements, npm } = own;
  const together = (key: "apt" | "requirements" | "npm") => [
    ...base[key],
    ...added[key],
    ...own[key],
  ];
  return {
    ...base,
    preset: preset ?? base.preset,
    apt: together("apt"),
    requirements: together("requirements"),
    npm: together("npm"),
    dockerfile: undefined,
    memory_limit:
      parseBytes(memory_limit) < parseBytes(base.memory_limit) ? memory_limit : base.memory_limit,
    cpu_limit: Math.min(base.cpu_limit, cpu_limit),
    timeout: Math.min(base.timeout, timeout),
    preload: [base.preload, added.preload].flatMap((one) => (one === "auto" ? [] : one)),
    env: { ...base.env, ...added.env, ...own.env },
    languages: { ...base.languages, ...own.languages },
    tenants: [tenant],
    made: {
      tenant,
      spec: {
        ...ofParts({ base_image, apt, requirements, npm, dockerfile: undefined }),
        tenant,
        below: below.filter((part) => stepsOf(part).length > 0),
      },
    },
  };
}

const presetParts = new Map<string | undefined, JobTypeDefinition>();
function ofPreset(preset: OwnJobType["preset"]): JobTypeDefinition {
  const known = presetParts.get(preset) ?? ConfiguredJobType.parse({ preset });
  presetParts.set(preset, known);
  return known;
}

/** The configuration with the job types of tenants. Those of the operator win. */
export function withOwnTypes(config: Config, rows: readonly OwnRow[]): Config {
  const known = combined.get(rows);
  if (known?.of === config) return known.made;
  const job_types = { ...config.job_types };
  for (const row of rows) {
    const definition = definedBy(config, row);
    if (definition && !Object.hasOwn(job_types, row.name)) job_types[row.name] = definition;
  }
  const made = { ...config, job_types };
  combined.set(rows, { of: config, made });
  return made;
}

/** By the rows as the store keeps them: every poll asks. */
const combined = new WeakMap<object, { of: Config; made: Config }>();

/** The beginning of the names of a tenant's own job types. No name of a tenant has a dot. */
export const ownPrefix = (tenant: string): string => `${tenant}.`;

/** What lists of all tenants call a job type: a name that a tenant has made is for that tenant. */
export function publicName({ job_types }: Pick<Config, "job_types">, name: string): string {
  return name.includes(".") && !Object.hasOwn(job_types, name) ? "(of a tenant)" : name;
}

/** Whether a tenant may use a job type; "*" is whoever sees all tenants. */
export function isFor(tenant: string, { tenants }: Pick<JobType, "tenants">): boolean {
  return tenants === undefined || tenant === "*" || tenants.includes(tenant);
}

/** The names of a tenant's job types, `default` first. */
export function jobTypeNames(config: Config, tenant: string): string[] {
  const names = [...new Set([defaultJobType, ...Object.keys(config.job_types)])];
  return names.filter((name) => isFor(tenant, definitionOf(config, name) ?? ofDefault));
}

/** A job type as agents receive it. */
export function toLeasedJobType({
  priority: _priority,
  languages: _languages,
  tenants: _tenants,
  preset: _preset,
  apt: _apt,
  npm: _npm,
  dockerfile: _dockerfile,
  made: _made,
  ...jobType
}: JobType): LeasedJobType {
  return jobType;
}

const ofDefault = JobTypeDefinition.parse({});

function definitionOf(config: Config, name: string): JobTypeDefinition | undefined {
  if (Object.hasOwn(config.job_types, name)) return config.job_types[name];
  return name === defaultJobType ? ofDefault : undefined;
}

function officialImage({ python_version }: JobTypeDefinition): string | undefined {
  return python_version && `python:${python_version}-slim`;
}

/** Says that the job's `requirements` were not installed, and why; undefined if there are none. */
export function describeIgnored(requirements: string[]): string | undefined {
  if (requirements.length === 0) return undefined;
  return `The requirements (${requirements.join(", ")}) were not installed: allow_runtime_requirements is false.`;
}

/** Adds to an import error that the job's `requirements` were not installed, and why. */
export function explainIgnored(
  error: ExecutionError | null,
  ignored: string | undefined,
): ExecutionError | null {
  if (error?.type !== "import_error" || ignored === undefined) return error;
  return { ...error, message: `${error.message}. ${ignored}` };
}

/** Modules whose package has another name. */
const packages: Readonly<Record<string, string>> = {
  PIL: "pillow",
  bs4: "beautifulsoup4",
  cv2: "opencv-python-headless",
  dateutil: "python-dateutil",
  docx: "python-docx",
  skimage: "scikit-image",
  sklearn: "scikit-learn",
  yaml: "pyyaml",
};

const ipython =
  "IPython is not installed: display(value) needs no import, and shows figures, tables and what has _repr_html_ and the like.";

/** Says how a tenant's code gets the module that an import error misses. */
export function describeMissing(
  error: ExecutionError | null,
  config: Config,
  { tenant, jobType, sessionId }: { tenant: string; jobType: string; sessionId: string | null },
): string | undefined {
  const [, module] =
    /^ModuleNotFoundError: No module named '(\w+)'$/.exec(error?.message ?? "") ?? [];
  if (module === undefined) return undefined;
  if (module === "IPython") return ipython;
  const name = packages[module] ?? module;
  const has = jobTypeNames(config, tenant).filter((type) =>
    resolveJobType(config, type)?.requirements.some(
      (one) => packageName(one) === packageName(name),
    ),
  );
  const ways = [
    ...(has.length > 0 ? [`use job_type ${has.slice(0, 3).join(" or ")}`] : []),
    ...(config.allow_runtime_requirements
      ? [
          `send requirements: [${JSON.stringify(name)}] with the ${sessionId === null ? "job" : "session"}`,
        ]
      : []),
  ];
  if (ways.length === 0) {
    const preset = presetWith(name);
    const what = preset === undefined ? "that to the requirements of" : `preset = "${preset}" to`;
    ways.push(`an operator adds ${what} a job type`);
  }
  return `Job type ${jobType} has no module ${module}. If it comes from a package (${name}): ${ways.join(", or ")}.`;
}

/**
 * What identifies a submission: equal submissions have equal parts, so a repeat is recognised. Fields that were added
 * after the first version are included only where they are given, so that repeats of older submissions still match.
 *
 * @param files What says which files it asks for.
 */
export function identityOf(
  request: ExecuteRequest,
  lineage?: object,
  files: object[] = [],
): unknown[] {
  const { stdin = "", args = [], metadata = {}, run_at, queue_timeout } = request;
  const { callback_url } = request;
  const max_attempts = attemptsOf(request) ?? limits.maxAttempts;
  const program = programOf(request);
  const added = {
    ...lineage,
    ...(program !== undefined && { program }),
    ...(request.results === true && { results: true }),
    ...toolsOf(request),
    ...(stdin !== "" && { stdin }),
    ...(args.length > 0 && { args }),
    ...(files.length > 0 && { files }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
    ...(run_at !== undefined && { run_at: Date.parse(run_at) }),
    ...(queue_timeout !== undefined && { queue_timeout }),
    ...(callback_url !== undefined && { callback_url }),
    ...(max_attempts < limits.maxAttempts && { max_attempts }),
  };
  return [
    request.code,
    request.input_data,
    request.timeout ?? null,
    request.startup_timeout,
    request.job_type,
    request.requirements,
    ...(Object.keys(added).length > 0 ? [added] : []),
  ];
}

/**
 * What an agent must be able to do for a job; null if every agent can run it. Files that are copied use
 * the job's memory, so files of many bytes must be mounted.
 */
export function neededFor(
  { stdin = "", args = [] }: ExecuteRequest,
  files: { sizeBytes: number }[],
  { memory_limit }: JobType,
): InputWay | null {
  const bytes = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (bytes > parseBytes(memory_limit) / 4) return "mount";
  return stdin === "" && args.length === 0 && files.length === 0 ? null : "frames";
}

/** What a submission runs in place of Python, as the store keeps it. */
export type ProgramChoice = Pick<
  ExecuteRequest,
  "language" | "command" | "compile_command" | "compile_timeout"
>;

/** Undefined if the code is Python. */
export function programOf({
  language = "python",
  command,
  compile_command,
  compile_timeout,
}: ExecuteRequest): ProgramChoice | undefined {
  if (language === "python" && command === undefined) return undefined;
  return {
    ...(command === undefined ? { language } : { command }),
    ...(compile_command !== undefined && { compile_command }),
    ...(compile_timeout !== undefined && { compile_timeout }),
  };
}

/** The languages that jobs of a type may name. The image may lack the program of one. */
export function languagesOf(jobType: Pick<JobType, "languages">): Record<string, Language> {
  return { ...languages, ...jobType.languages };
}

/** The program as an agent runs it; undefined if the job type has no such language. */
export function resolveProgram(
  {
    language,
    command,
    compile_command,
    compile_timeout = limits.compileTimeoutDefaultS,
  }: ProgramChoice,
  jobType: Pick<JobType, "languages">,
): LeasedJob["program"] {
  const found = command
    ? { file: "main", compile: compile_command, run: command }
    : entryOf(languagesOf(jobType), language);
  if (found === undefined) return undefined;
  const { file, compile = [], run } = found;
  const named = (argument: string): string => argument.replaceAll("{file}", `/code/${file}`);
  return {
    file,
    compile: compile.map(named),
    compile_timeout_s: compile_timeout,
    run: run.map(named),
  };
}

function entryOf(known: Record<string, Language>, name = ""): Language | undefined {
  return Object.hasOwn(known, name) ? known[name] : undefined;
}

/** The caller's functions of a submission, as the store keeps them. */
export interface ToolChoice {
  tools: Tool[];
  tool_timeout?: number;
}

/** Undefined if there are none. */
export function toolsOf({ tools = [], tool_timeout }: ExecuteRequest): ToolChoice | undefined {
  if (tools.length === 0) return undefined;
  return { tools, ...(tool_timeout !== undefined && { tool_timeout }) };
}

export function leasedTools(choice: ToolChoice, maxTimeoutS: number): LeasedJob["tools"] {
  const timeout_s = choice.tool_timeout ?? Math.min(limits.toolTimeoutDefaultS, maxTimeoutS);
  return { functions: choice.tools, timeout_s };
}

/** A second try would repeat calls that the caller has answered. */
export function attemptsOf(request: ExecuteRequest): number | undefined {
  return toolsOf(request) ? 1 : request.max_attempts;
}
