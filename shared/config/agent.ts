import { z } from "zod";
import { MemorySize, NetworkMode } from "../wire/job-types.ts";
import { address, flag, int, key, key16, MiB, optional, text } from "./api.ts";

/** An address whose user and password the agent decodes. */
const withUser = (protocol: RegExp) =>
  z.url({ protocol }).refine(isDecodable, "a % in the user or password must be written as %25");

function isDecodable(url: string): boolean {
  try {
    const { username, password } = new URL(url);
    decodeURIComponent(`${username}:${password}`);
    return true;
  } catch {
    return !URL.canParse(url);
  }
}

/** Keys that only the agent reads. */
export const agentSettings = {
  api_url: optional(
    z.url({ protocol: /^https?$/ }),
    "Agent: address of the API; default: the one it joined, else http://127.0.0.1:8080.",
  ),
  api_ca_file: optional(
    text,
    "Agent: file of certificates (PEM) to trust for the API, instead of the system's.",
  ),
  allow_plain_http: flag(
    false,
    "Agent: allow an api_url with http:// on another host. The agent's token then crosses the network in clear.",
  ),
  agent_token: optional(
    key16.refine(
      (token) => !token.startsWith("alj_"),
      "is a join code: exchange it with npm run agent -- join",
    ),
    "Agent: one of the API's agent_tokens; default: the token from joining.",
  ),
  agent_name: optional(
    z.string().min(1).max(128),
    "Agent: name of the agent; default: the host name.",
  ),
  agent_labels: key(
    z.record(z.string(), z.string()),
    {},
    "Agent: labels that job types can ask for.",
  ),
  agent_gpus: key(
    z
      .array(
        z
          .string()
          .regex(
            /^(?:[0-9]+|(?:GPU|MIG)-[0-9A-Za-z/-]+)$/,
            'must be an index such as "0", or a UUID: nvidia-smi -L',
          ),
      )
      .max(1000)
      .refine((ids) => new Set(ids).size === ids.length, "must name each GPU once"),
    [],
    "Agent: GPUs that it gives to jobs, by index or UUID (nvidia-smi -L). Give no GPU to two agents.",
  ),
  agent_job_types: optional(
    z.array(z.string().min(1).max(128)).max(1000),
    "Agent: job types that it accepts; `*` stands for any part of a name; default: all.",
  ),
  agent_images: optional(
    z.array(text),
    "Agent: images that it accepts, to run and to build: references or ids (sha256:…); `*` stands for any text without a slash; default: all.",
  ),
  agent_networks: optional(
    z.array(NetworkMode),
    "Agent: networks of job types that it accepts; default: all.",
  ),
  agent_runtimes: optional(
    z.array(text),
    "Agent: runtimes of the engine that it accepts; `*` stands for any part of a name; default: all.",
  ),
  agent_max_memory: optional(
    MemorySize,
    "Agent: largest memory limit of a job that it accepts, and the memory limit of builds and of installations for forked jobs, such as 512m or 2g; default: any for jobs, 2g for the others.",
  ),
  agent_max_cpus: optional(
    z.number().positive(),
    "Agent: most CPUs of a job that it accepts, and the CPU limit of builds; default: any for jobs, 1 for builds.",
  ),
  agent_max_gpus: optional(
    z.int().min(0),
    "Agent: most GPUs of a job that it accepts; default: any.",
  ),
  agent_max_timeout: optional(
    z.int().min(1),
    "Agent: longest timeout of a job that it accepts, in seconds; default: any.",
  ),
  agent_max_stdout_bytes: optional(
    z.int().min(1024),
    "Agent: largest max_stdout_bytes that it accepts; a lower value than the API's refuses all jobs; default: any.",
  ),
  agent_max_artifact_bytes: optional(
    z.int().min(0),
    "Agent: largest max_artifact_bytes that it accepts; a lower value than the API's refuses all jobs; default: any.",
  ),
  agent_builds: flag(
    true,
    "Agent: accept builds, which run pip as root in a container; it reaches the package index through the agent.",
  ),
  agent_tenant_builds: flag(
    false,
    "Agent: also build job types that tenants have made (tenant_job_types): packages of apt as root, of pip and npm as a user without rights.",
  ),
  docker_host: optional(
    z.string(),
    "Agent: engine address; default: DOCKER_HOST, else the usual sockets.",
  ),
  max_workers: int({ min: 1, max: 1000, default: 4 }, "Agent: jobs that it runs at once."),
  max_sessions: int(
    { min: 0, max: 1000, default: 8 },
    "Agent: sessions that it holds at once, beside its jobs; 0: none.",
  ),
  warm_pool_size: int(
    { min: 0, max: 1000, default: 2 },
    "Agent: containers that it keeps ready for each job type that was used lately; 0: none.",
  ),
  warm_pool_max: int(
    { min: 0, max: 10_000, default: 16 },
    "Agent: most containers that it keeps ready, for all job types together.",
  ),
  warm_pool_idle_s: key(
    z.number().min(1),
    600,
    "Agent: seconds for which it keeps containers ready after the last job of a type.",
  ),
  container_backend: key(
    z.enum(["auto", "engine", "zygote"]),
    "auto",
    "Agent: zygote: jobs are forked inside one container, and the agent takes no work where that is impossible; engine: each job gets a container that the engine starts; auto: forked where a probe job finds its sandbox as it should be, else as with engine.",
  ),
  mother_image: optional(
    text,
    "Agent: image whose Python forks the jobs, with more rights than they have; default: `base_image`.",
  ),
  id_range_start: int(
    { min: 65_536, max: 4_294_836_224, default: 0x7000_0000 },
    "Agent: first of the 65536 user and group ids of the host that forked jobs have; nothing else on the host may use them. Under a rootless engine, jobs have ids of the engine's user instead.",
  ),
  container_runtime: optional(
    text,
    "Agent: runtime of the engine, such as runsc for gVisor; default: the engine's own.",
  ),
  security_mode: key(
    z.enum(["permissive", "strict"]),
    "permissive",
    "permissive: without gVisor, run jobs on the engine's own runtime; strict: fail them.",
  ),
  enable_seccomp: flag(
    true,
    "Agent: filter the system calls of the code. (gVisor has a kernel of its own instead.)",
  ),
  image_registry_username: optional(
    text,
    "Agent: user name for its `image_registry`; sent to no other.",
  ),
  image_registry_password: optional(text, "Agent: password for its `image_registry`."),
  input_files_bytes: int(
    { min: MiB, default: 10 * 1024 * MiB },
    "Agent: bytes of jobs' input files that it keeps in spool_dir for the next job with the same; what has not been used for the longest time is removed first. A job with more is refused.",
  ),
  fetched_images_bytes: int(
    { min: MiB, default: 20 * 1024 * MiB },
    "Agent: unpacked bytes of images from other hosts that it keeps. Above that it removes those that no job type needs any more, the least recently used first.",
  ),
  build_cache_bytes: int(
    { min: 0, default: 10 * 1024 * MiB },
    "Agent: bytes of images that it keeps for later builds: those of single steps, and builds that were replaced more than a day ago. Above that it removes the oldest that no job type, container or other image needs.",
  ),
  max_built_bytes: int(
    { min: MiB, default: 20 * 1024 * MiB },
    "Agent: bytes that a build may add to its base image; a build that adds more fails after the step that exceeds it.",
  ),
  pip_index_url: optional(
    z.url({ protocol: /^https?$/ }),
    "Agent: package index that builds and jobs install from; default: PyPI.",
  ),
  pip_find_links: optional(
    text,
    "Agent: folder of wheels that builds and jobs install from. Without pip_index_url, no index is asked.",
  ),
  pip_ca_file: optional(
    text,
    "Agent: file of certificates (PEM) to trust for all places that packages come from.",
  ),
  pip_hosts: key(
    z
      .array(
        z
          .string()
          .regex(
            /^(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?$/,
            'must be a host in lower case, with or without a port: "files.example", "10.1.2.3:8081"',
          ),
      )
      .max(1000),
    [],
    "Agent: further hosts that packages of every kind may be fetched from, even if their address is private: those that an index serves its files from, or a mirror of Debian. Without a port, 80 and 443.",
  ),
  pip_proxy: optional(
    withUser(/^http$/),
    "Agent: HTTP proxy to fetch packages through, http://user:password@host:port. Only the index (or PyPI), Debian's, Ubuntu's and npm's own hosts and `pip_hosts` can then be reached; those with a private address are reached directly.",
  ),
  npm_registry: optional(
    withUser(/^https?$/),
    "Agent: registry that builds install npm's packages from, https://user:password@host or https://token@host; default: npm's own.",
  ),
  apt_mirror: optional(
    address(/^http$/),
    "Agent: mirror of Debian that builds use in place of http://deb.debian.org: the address below which it has debian and debian-security. apt checks Debian's signatures.",
  ),
  enable_runtime_dependency_cache: flag(
    false,
    "Agent: keep installed `requirements` for the next job that asks for the same.",
  ),
  dependency_cache_dir: optional(
    text,
    "Agent: folder of that cache for jobs that are not forked; default: dependency-cache in data_dir. The packages of forked jobs are in a volume of the engine.",
  ),
  dependency_cache_bytes: int(
    { min: MiB, default: 2048 * MiB },
    "Agent: size of that cache, in bytes; what has not been used for the longest time is removed first. Forked jobs read packages from disk: this is also the most that all of theirs together may take, cached or not.",
  ),
  drain_grace_s: key(
    z.number().min(0),
    10,
    "Seconds for which running jobs may continue when an agent stops, and for which the API waits for its synchronous requests when it stops.",
  ),
  spool_dir: optional(
    z.string(),
    "Agent: folder for artifacts on their way to the API; no other user may have write access; default: spool in data_dir.",
  ),
};
