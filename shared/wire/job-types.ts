import { z } from "zod";
import { parseBytes } from "../bytes.ts";
import { presetNames, withPreset } from "../presets.ts";
import { parseDockerfile } from "../dockerfile.ts";
import { RequirementText } from "../requirement.ts";
import { TenantName } from "./access.ts";
import { ExecutionError } from "./errors.ts";
import { orNull, Timestamp } from "./fields.ts";
import { limits } from "./limits.ts";

/** Follows the grammar of image names, since the name of a built image ends with it. */
export const JobTypeName = z
  .string()
  .max(63)
  .regex(
    /^[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*$/,
    "must be lower-case letters and digits, with '.', '_' or '-' between them",
  );

export const NetworkMode = z.enum(["none", "bridge"]);
export type NetworkMode = z.infer<typeof NetworkMode>;

/**
 * The sockets of the internet's families that code without a network may make: none, those of TCP, or
 * those of UDP too. The kernel charges what lies unread in them to no limit (TCP's with cgroup v1 only).
 */
export const Loopback = z.enum(["none", "tcp", "full"]);
export type Loopback = z.infer<typeof Loopback>;

const envName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be a shell variable name");

/** Memory as the engine writes it: a number with the unit b, k, m or g; at least 32m. */
export const MemorySize = z
  .string()
  .regex(/^[1-9][0-9]*[bkmg]?$/i, {
    error: 'must be a number with a unit, such as "512m"',
    abort: true,
  })
  .refine((text) => parseBytes(text) >= 32 * 1024 * 1024, "must be at least 32m");

/** A package of Debian's, as `apt-get install` names it: deb-version(7). */
const AptPackage = z
  .string()
  .max(256)
  .regex(
    /^[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+~:-]+|\/[a-z0-9][a-z0-9.-]*)?$/,
    'must be a package of Debian\'s, with a version or a release at most, such as "jq", "jq=1.7.1-6" or "jq/trixie"',
  );

/** A package of npm's registry; never a URL, a path or an option of npm. */
const NpmPackage = z
  .string()
  .max(256)
  .regex(
    /^(?:@[a-z0-9~][a-z0-9._~-]*\/)?[a-z0-9~][a-z0-9._~-]*(?:@[A-Za-z0-9.^~<>=|*+ -]+)?$/,
    'must be a package of npm\'s registry, with a version or a tag at most, such as "mermaid", "mermaid@11" or "@scope/name@^1.2"',
  );

const Argument = z.string().min(1).max(4096);

const LanguageName = z
  .string()
  .regex(/^[a-z][a-z0-9+#_-]{0,31}$/, "must be the name of a language");

/** As `Language` in languages.ts. */
const LanguageDefinition = z.strictObject({
  file: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/, "must be the name of a file"),
  compile: z.array(Argument).min(1).max(100).optional(),
  run: z.array(Argument).min(1).max(100),
});

const Dockerfile = z.string().superRefine((text, ctx) => {
  try {
    if (!text.includes("\n"))
      throw new Error("dockerfile: is read from a file by the API on Node only");
    parseDockerfile(text);
  } catch (error) {
    ctx.addIssue({ code: "custom", message: (error as Error).message, input: text });
  }
});

/** One `[job_types.<name>]` table of airlock.toml. */
export const JobTypeDefinition = z.strictObject({
  preset: z
    .enum(presetNames)
    .optional()
    .describe(
      "Packages and settings for a purpose: science, documents or languages. The job type's own lists, `env` and lines of a `dockerfile` extend those of the preset, its other keys replace them. See docs/guides/packages.md.",
    ),
  base_image: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Image that jobs run on, or that a build starts from; default: the key `base_image`.",
    ),
  python_version: z
    .string()
    .regex(/^3\.[0-9]+(\.[0-9]+)?$/, 'must look like "3.13"')
    .optional()
    .describe("Python version; without base_image, the image is `python:<version>-slim`."),
  requirements: z
    .array(z.string().min(1))
    .default([])
    .describe("Packages of Python that a build installs into the image."),
  apt: z
    .array(AptPackage)
    .default([])
    .describe("Packages of Debian or Ubuntu that a build installs into the image."),
  npm: z
    .array(NpmPackage)
    .default([])
    .describe("Packages of npm that a build installs into the image, without their scripts."),
  dockerfile: Dockerfile.optional().describe(
    "Lines of a Dockerfile that a build runs after the packages are installed; a value of one line is the name of a file beside airlock.toml. See docs/guides/packages.md.",
  ),
  memory_limit: MemorySize.default("512m").describe(
    "Memory limit, such as 512m or 2g; at least 32m. /tmp and /output count against it.",
  ),
  cpu_limit: z.number().min(0.01).max(1024).default(1).describe("CPU limit: number of CPUs."),
  pids: z
    .int()
    .min(32)
    .max(limits.pidsMax)
    .default(128)
    .describe("Processes and threads that a job may have at once."),
  timeout: z
    .int()
    .min(1)
    .optional()
    .describe("Default timeout of its jobs, in seconds; default: the key `default_timeout`."),
  network: NetworkMode.default("none").describe(
    "none: the code has no network; bridge: it reaches whatever the host's bridge reaches.",
  ),
  loopback: Loopback.default("tcp").describe(
    "Sockets of IPv4 and IPv6 without a network: none; tcp; or full, with UDP and the list of interfaces, which can take memory of the host beyond memory_limit.",
  ),
  max_sockets: z
    .int()
    .min(1)
    .max(100_000)
    .default(1024)
    .describe(
      "Sockets that a job may have open without a network; with more of them it ends as oom.",
    ),
  preload: z
    .union([
      z.literal("auto"),
      z.array(z.string().regex(/^[A-Za-z_][\w.]*$/, "must be a module name")),
    ])
    .default("auto")
    .describe(
      "Modules imported before the job arrives. auto: where jobs are forked, those of the image that recent jobs import in lines of their own, from the third such job in 10 minutes on.",
    ),
  languages: z
    .record(LanguageName, LanguageDefinition)
    .default({})
    .describe(
      "Languages that its jobs may name, by name, in addition to the built-in ones or in place of them: each a table with file, compile (if there is a compiler) and run. See docs/guides/languages.md.",
    ),
  labels: z
    .record(z.string(), z.string())
    .default({})
    .describe("Labels that an agent must have to run its jobs."),
  gpus: z
    .int()
    .min(0)
    .max(1000)
    .default(0)
    .describe("GPUs that each of its jobs gets for itself, from an agent's agent_gpus."),
  priority: z
    .int()
    .min(-1000)
    .max(1000)
    .default(0)
    .describe(
      "Number of turns by which its jobs move forward in the queue: for each tenant, they pass at most that many earlier jobs.",
    ),
  tenants: z
    .array(TenantName)
    .min(1)
    .optional()
    .describe("Tenants that may use it; for all others it does not exist. Default: all tenants."),
  env: z
    .record(envName, z.string())
    .default({})
    .describe("Environment variables of the code. The code can read them: put no secret there."),
});
export type JobTypeDefinition = z.infer<typeof JobTypeDefinition>;

/** With what its preset adds, and with what its keys say together. */
export const ConfiguredJobType = z.preprocess(
  withPreset,
  JobTypeDefinition.superRefine(({ dockerfile = "", base_image, preset }, ctx) => {
    const other = base_image ? "base_image" : preset && "preset";
    if (!other || parseDockerfile(dockerfile).from === undefined) return;
    const message = `dockerfile: FROM stands beside ${other}`;
    ctx.addIssue({ code: "custom", path: ["dockerfile"], message, input: dockerfile });
  }),
);

/** A job type with every default filled in, as an agent needs it to make containers. */
export const JobType = JobTypeDefinition.extend({
  name: JobTypeName,
  base_image: z.string(),
  timeout: z.int(),
});
/** `made` is set if a tenant has made it: by whom, and what its image is made of. */
export type JobType = z.infer<typeof JobType> & { made?: { tenant: string; spec: BuildSpec } };

/**
 * Everything that the image of a job type is made of. If it changes, the type counts as not built. A newer key is
 * left out where it is empty, so that images built before that key existed stay valid.
 */
export type BuildSpec = Pick<z.infer<typeof JobType>, "base_image" | "requirements"> &
  Partial<Pick<JobTypeDefinition, "apt" | "npm" | "dockerfile">> & {
    /** The tenant whose packages these are, and what the operator and the preset put below them. */
    tenant?: string;
    below?: BuildSpec[];
  };

/**
 * Names that change what programs of root load or run: those of the dynamic linker, of Python, of OpenSSL, of pip, which
 * installs the packages of a request. The processes that hold a sandbox have the variables of its job type. Some runtimes
 * give GPUs by name.
 */
const loaderNames =
  /^(LD_|GLIBC_|MALLOC_|PYTHON|OPENSSL|SSL|PIP_|XDG_CONFIG_|NETRC$|NVIDIA_|\w+_VISIBLE_DEVICES$|(GCONV_|LOC|NLS)?PATH$)/i;
/** A process keeps the definitions of all tenants in memory. */
const mostCharacters = 64 * 1024;

/** A package of Debian's that is installed: apt-get removes a package whose name has a "-" behind it. */
const InstalledPackage = AptPackage.refine((name) => !name.endsWith("-"), "must not end with -");
const packagesOf = <T extends z.ZodType<string>>(item: T) => z.array(item).max(100).default([]);
const hasRoom = [
  (table: object) => Object.keys(table).length <= 100,
  "must have at most 100 keys",
] as const;

/** A job type that a tenant makes. Of what its operator's job type has, it adds packages and takes less. */
export const OwnJobType = z
  .strictObject({
    extends: JobTypeName.default("default").meta({
      description:
        "The job type of the configuration whose image, limits, network, labels and other keys it has.",
    }),
    preset: JobTypeDefinition.shape.preset,
    apt: packagesOf(InstalledPackage).describe("Packages of Debian or Ubuntu."),
    requirements: packagesOf(RequirementText).describe("Packages of Python, as wheels alone."),
    npm: packagesOf(NpmPackage).describe("Packages of npm, without their scripts."),
    env: z
      .record(
        envName.max(128).refine((name) => !loaderNames.test(name), "is read by programs of root"),
        z
          .string()
          .max(4096)
          .refine((text) => !text.includes("\0"), "must have no NUL"),
      )
      .refine(...hasRoom)
      .default({})
      .describe("Environment variables of the code."),
    languages: z
      .record(LanguageName, LanguageDefinition.meta({ id: "LanguageDefinition" }))
      .refine(...hasRoom)
      .default({})
      .describe("Languages that its jobs may name, as in the configuration."),
    memory_limit: MemorySize.optional().describe("Memory limit; default: that of `extends`."),
    cpu_limit: JobTypeDefinition.shape.cpu_limit
      .unwrap()
      .optional()
      .describe("CPU limit; default: that of `extends`."),
    timeout: JobTypeDefinition.shape.timeout.describe(
      "Default timeout of its jobs, in seconds; default: that of `extends`.",
    ),
  })
  .refine(
    (own) => JSON.stringify(own).length <= mostCharacters,
    `must have at most ${mostCharacters} characters`,
  )
  .meta({
    id: "OwnJobType",
    description: "A job type of your tenant. No limit is wider than that of `extends`.",
  });
export type OwnJobType = z.infer<typeof OwnJobType>;

const LanguageView = z
  .object({
    name: z.string().meta({ example: "cpp" }),
    version: z.string().nullable().meta({
      description: "Version of its compiler or interpreter; null if it is not known.",
      example: "14.2.0",
    }),
  })
  .meta({ id: "Language" });

/** A job type as the API shows it. */
export const JobTypeView = z
  .object({
    name: z.string().meta({ example: "science" }),
    preset: z.enum(presetNames).nullable().meta({
      description: "The preset whose packages are among those below; null if there is none.",
      example: "science",
    }),
    requirements: z.array(z.string()).meta({
      description: "Packages of Python that a build installs into the image.",
      example: ["numpy==2.3.4"],
    }),
    apt: z.array(z.string()).meta({
      description: "Packages of Debian or Ubuntu that a build installs into the image.",
      example: ["graphviz"],
    }),
    npm: z.array(z.string()).meta({
      description: "Packages of npm that a build installs into the image.",
      example: ["mermaid@11"],
    }),
    python_version: z.string().meta({
      description:
        "Python version of the built image; before a build, of the image that it starts from.",
      example: "3.13",
    }),
    memory_limit: z.string().meta({ example: "512m" }),
    cpu_limit: z.number().meta({ description: "CPU limit: number of CPUs.", example: 1 }),
    pids: z.int().meta({
      description: "Processes and threads that a job may have at once.",
      example: 128,
    }),
    timeout: z.int().meta({ description: "Seconds; default timeout of its jobs.", example: 30 }),
    image_exists: z.boolean().meta({
      description:
        "Whether a connected agent has the image that jobs of this type run on: the built image, or the base image if there is nothing to install.",
    }),
    languages: z.array(LanguageView).meta({
      description:
        "Languages that its jobs may name. Once an agent has looked into the image, only those that the image has.",
    }),
  })
  .meta({ id: "JobType", description: "A named environment for jobs." });
export type JobTypeView = z.infer<typeof JobTypeView>;

export const JobTypeDeleted = z
  .object({ name: z.string(), deleted: z.literal(true) })
  .meta({ id: "JobTypeDeleted" });

export const JobTypeList = z.array(JobTypeView).meta({ id: "JobTypeList" });

/** A job type as agents receive it. */
export const LeasedJobType = z.object(
  JobType.omit({
    priority: true,
    languages: true,
    tenants: true,
    preset: true,
    apt: true,
    npm: true,
    dockerfile: true,
  }).shape,
);
export type LeasedJobType = z.infer<typeof LeasedJobType>;

/** SHA-256 of an image as its engine names it. */
export const ImageDigest = z.string().regex(/^sha256:[0-9a-f]{64}$/);

/**
 * A version that a build may be tagged with: a semantic version (semver.org 2.0.0) after a "v".
 * An image's tag cannot contain "+", so build metadata are refused.
 */
export const VersionTag = z
  .string()
  .max(128)
  .regex(
    /^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?$/,
    'must be a semantic version such as "v1.2.3" or "v1.2.3-rc.1", without build metadata',
  );

const digest = ImageDigest.meta({ example: `sha256:${"4e".repeat(32)}` });
const version = z.string().meta({
  description: "`<job_type>@sha256:<digest>`: the `job_ref` in the records of its jobs.",
  example: `science@sha256:${"4e".repeat(32)}`,
});
const imageRef = z.string().meta({ example: "airlock-science:v1.2.3" });

export const BuildResult = z
  .object({
    status: z.literal("built"),
    job_type: z.string().meta({ example: "science" }),
    version,
    digest,
    image_ref: imageRef,
  })
  .meta({ id: "BuildResult" });
export type BuildResult = z.infer<typeof BuildResult>;

export const buildStatuses = ["queued", "running", "built", "failed"] as const;

/** The last build of a job type, running or ended. */
export const Build = z
  .object({
    status: z.enum(buildStatuses).meta({ id: "BuildStatus" }),
    job_type: z.string().meta({ example: "science" }),
    image_ref: imageRef,
    version: version.nullable(),
    digest: digest.nullable(),
    error: orNull(ExecutionError),
    step: z.int().nullable().meta({
      description: "The step that runs, or ran last, from 1; null before the first.",
      example: 2,
    }),
    steps: z.int().meta({ description: "Number of steps.", example: 3 }),
    created_at: Timestamp,
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
    log: z.string().meta({ description: "Output of the build so far; at most 1 MiB." }),
  })
  .meta({ id: "Build" });
export type Build = z.infer<typeof Build>;

/** How a built image reaches other hosts: through a registry, through the artifact store, or not at all. */
export const ImageTransport = z.enum(["registry", "store", "none"]);
export type ImageTransport = z.infer<typeof ImageTransport>;

/** Where an agent can get an image that another agent built: answer to `GET /agent/v1/images/{id}`. */
export const ImageSource = z.object({
  /** The image's id: the SHA-256 of its configuration, the same on every host. */
  image: ImageDigest,
  job_type: JobTypeName,
  /** Labels of the agents that need it. */
  labels: z.record(z.string(), z.string()),
  /** Its name in a registry with the digest of its manifest; null if it comes from `…/images/{id}/archive`. */
  registry_ref: z
    .string()
    .regex(/^[^@\s]+@sha256:[0-9a-f]{64}$/)
    .nullable(),
});
export type ImageSource = z.infer<typeof ImageSource>;
