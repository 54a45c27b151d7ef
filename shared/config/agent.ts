import { z } from "zod";
import { MemorySize, NetworkMode } from "../wire/job-type.ts";
import { key16, MiB } from "./units.ts";

/** Keys that only the agent reads. */
export const agentSettings = {
  api_url: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe("Agent: address of the API; default: that it joined, else http://127.0.0.1:8080."),
  api_ca_file: z
    .string()
    .min(1)
    .optional()
    .describe("Agent: certificates (PEM) that the API is trusted by, instead of the system's."),
  allow_plain_http: z
    .boolean()
    .default(false)
    .describe(
      "Agent: allow an api_url with http:// on another host; its token crosses the network in clear.",
    ),
  agent_token: key16
    .refine(
      (token) => !token.startsWith("alj_"),
      "is a join code: exchange it with npm run agent -- join",
    )
    .optional()
    .describe("Agent: one of the API's agent_tokens; default: the token that it joined with."),
  agent_name: z
    .string()
    .min(1)
    .max(128)
    .optional()
    .describe("Agent: its name; default: the host name."),
  agent_labels: z
    .record(z.string(), z.string())
    .default({})
    .describe("Agent: labels that job types can ask for."),
  agent_gpus: z
    .array(
      z
        .string()
        .regex(
          /^(?:[0-9]+|(?:GPU|MIG)-[0-9A-Za-z/-]+)$/,
          'must be an index such as "0", or a UUID: nvidia-smi -L',
        ),
    )
    .max(1000)
    .refine((ids) => new Set(ids).size === ids.length, "must name each GPU once")
    .default([])
    .describe(
      "Agent: its GPUs by index or UUID (nvidia-smi -L), for jobs whose type asks for some; none of them may be another agent's.",
    ),
  agent_job_types: z
    .array(z.string().min(1).max(128))
    .max(1000)
    .optional()
    .describe("Agent: job types it accepts, `*` for any part of a name; default: all."),
  agent_images: z
    .array(z.string().min(1))
    .optional()
    .describe(
      "Agent: images it accepts, to run and to build: references, or ids (sha256:…), `*` for any text without a slash; default: all.",
    ),
  agent_networks: z
    .array(NetworkMode)
    .optional()
    .describe(
      "Agent: networks it accepts; a build that installs packages needs bridge; default: all.",
    ),
  agent_runtimes: z
    .array(z.string().min(1))
    .optional()
    .describe("Agent: engine runtimes it accepts, `*` for any part of a name; default: all."),
  agent_max_memory: MemorySize.optional().describe(
    "Agent: most memory of a job it accepts, and what a build may take: 512m, 2g; default: any.",
  ),
  agent_max_cpus: z
    .number()
    .positive()
    .optional()
    .describe("Agent: most CPUs of a job it accepts, and what a build may take; default: any."),
  agent_max_gpus: z
    .int()
    .min(0)
    .optional()
    .describe("Agent: most GPUs of a job it accepts; default: any."),
  agent_max_timeout: z
    .int()
    .min(1)
    .optional()
    .describe("Agent: longest timeout of a job it accepts, seconds; default: any."),
  agent_max_stdout_bytes: z
    .int()
    .min(1024)
    .optional()
    .describe(
      "Agent: most bytes kept of stdout, and of stderr, of a job it accepts: no less than the API's max_stdout_bytes; default: any.",
    ),
  agent_max_artifact_bytes: z
    .int()
    .min(0)
    .optional()
    .describe(
      "Agent: most bytes of artifacts of a job it accepts: no less than the API's max_artifact_bytes; default: any.",
    ),
  agent_builds: z
    .boolean()
    .default(true)
    .describe("Agent: build images, which runs pip as root in a container with a network."),
  docker_host: z
    .string()
    .optional()
    .describe("Agent: engine address; default: DOCKER_HOST, else the usual sockets."),
  max_workers: z.int().min(1).max(1000).default(4).describe("Agent: executions at once."),
  warm_pool_size: z
    .int()
    .min(0)
    .max(1000)
    .default(2)
    .describe(
      "Agent: containers kept ready for each kind of job that came lately, and more of those that come often; 0 for none.",
    ),
  warm_pool_max: z
    .int()
    .min(0)
    .max(10_000)
    .default(16)
    .describe("Agent: containers kept ready at the most, of all kinds together."),
  warm_pool_idle_s: z
    .number()
    .min(1)
    .default(600)
    .describe("Agent: seconds that a kind of job is kept ready after the last of it."),
  container_runtime: z.string().min(1).optional().describe("Agent: engine runtime, such as runsc."),
  security_mode: z
    .enum(["permissive", "strict"])
    .default("permissive")
    .describe("strict: fail jobs rather than fall back from runsc."),
  enable_seccomp: z
    .boolean()
    .default(true)
    .describe("Agent: filter the system calls of the code; gVisor brings its own kernel instead."),
  image_registry_username: z
    .string()
    .min(1)
    .optional()
    .describe("Agent: user at its own `image_registry`; told to no other."),
  image_registry_password: z.string().min(1).optional().describe("Agent: its password."),
  fetched_images_bytes: z
    .int()
    .min(MiB)
    .default(20 * 1024 * MiB)
    .describe(
      "Agent: bytes of images from other hosts, unpacked; beyond that those go that no job type needs any more, the least recently used first.",
    ),
  pip_index_url: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe("Agent: package index that builds and jobs install from; default: PyPI."),
  pip_find_links: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Agent: folder of wheels that builds and jobs install from; without pip_index_url no index is asked.",
    ),
  pip_ca_file: z
    .string()
    .min(1)
    .optional()
    .describe("Agent: certificates (PEM) that the package index is trusted by."),
  enable_runtime_dependency_cache: z
    .boolean()
    .default(false)
    .describe("Agent: keep installed `requirements` for the next job that asks for the same."),
  dependency_cache_dir: z
    .string()
    .min(1)
    .optional()
    .describe("Agent: folder of that cache; default: dependency-cache in data_dir."),
  dependency_cache_bytes: z
    .int()
    .min(MiB)
    .default(2048 * MiB)
    .describe("Agent: bytes of that cache; what was not used for longest goes first."),
  drain_grace_s: z
    .number()
    .min(0)
    .default(10)
    .describe("Agent: seconds that running jobs get at a stop."),
  spool_dir: z
    .string()
    .optional()
    .describe(
      "Agent: folder for artifacts on their way; default: under the system's temporary folder.",
    ),
};
