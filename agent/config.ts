import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { Config, ConfigError } from "../shared/config/config.ts";
import { readConfig } from "../shared/process/files.node.ts";
import { intervalsOf } from "../shared/wire/leases.ts";
import { fixedToken, joinedToken, readCredentials } from "./client/http.ts";
import { apiAddress } from "./client/join.ts";
import type { RuntimePolicy } from "./host/policy.ts";
import type { Registry } from "./images/transfer.ts";

/** The part of the configuration that an agent uses. */
export type AgentConfig = ReturnType<typeof readAgentConfig>;

const localApi = "http://127.0.0.1:8080";

/**
 * Reads the agent's settings and the credentials that its host got by joining.
 *
 * @throws ConfigError with one line per fault.
 */
export function readAgentConfig(env: NodeJS.ProcessEnv) {
  const config = readConfig(env);
  const { agent_token, data_dir } = config;
  const joined = agent_token === undefined ? readCredentials(data_dir) : undefined;
  if (agent_token === undefined && !joined) {
    throw new ConfigError(
      "AIRLOCK_AGENT_TOKEN is not set: join (npm run agent -- join --url … --code …), or give the agent one of the API's agent_tokens",
    );
  }
  return {
    api: apiAddress(config.api_url ?? joined?.api_url ?? localApi, config),
    token: joined ? joinedToken(data_dir, joined.token) : fixedToken(agent_token ?? ""),
    name: config.agent_name ?? joined?.name ?? hostname(),
    labels: config.agent_labels,
    gpus: config.agent_gpus,
    dockerHost: config.docker_host,
    slots: config.max_workers,
    maxSessions: config.max_sessions,
    warmPool: {
      least: config.warm_pool_size,
      most: config.warm_pool_max,
      idleMs: config.warm_pool_idle_s * 1000,
    },
    runtime: runtimePolicyOf(config),
    forks: {
      mode: config.container_backend,
      /** Image whose Python is the mother's. */
      image: config.mother_image ?? config.base_image,
      firstId: config.id_range_start,
    },
    policy: config,
    seccomp: config.enable_seccomp,
    drainGraceMs: config.drain_grace_s * 1000,
    // An absolute path, because the engine reads a file in this folder.
    spoolDir: resolve(config.spool_dir ?? join(data_dir, "spool")),
    registry: registryOf(config),
    /** Of unpacked images, as the two that follow. */
    maxImageBytes: config.max_image_bytes,
    maxFetchedBytes: config.fetched_images_bytes,
    buildCacheBytes: config.build_cache_bytes,
    inputFilesBytes: config.input_files_bytes,
    pip: {
      indexUrl: config.pip_index_url,
      findLinks: config.pip_find_links,
      caFile: config.pip_ca_file,
      hosts: config.pip_hosts,
      proxyUrl: config.pip_proxy,
      npmRegistry: config.npm_registry,
      aptMirror: config.apt_mirror,
    },
    requirements: {
      allowed: config.allow_runtime_requirements,
      /** Bytes of the packages that forked jobs read. */
      maxBytes: config.dependency_cache_bytes,
      cache: config.enable_runtime_dependency_cache
        ? {
            folder: config.dependency_cache_dir ?? join(config.data_dir, "dependency-cache"),
            maxBytes: config.dependency_cache_bytes,
          }
        : null,
    },
    log: config,
    /** Used until the API has sent its own. */
    intervals: intervalsOf(config),
  };
}

function registryOf(config: Config): Registry {
  const { image_registry: name, image_registry_username: username } = config;
  const { image_registry_password: password } = config;
  if (username === undefined && password === undefined) return { name, auth: undefined };
  if (name === undefined || username === undefined || password === undefined) {
    throw new ConfigError(
      "set image_registry, image_registry_username and image_registry_password together: the password is sent to that registry only",
    );
  }
  return { name, auth: { username, password } };
}

function runtimePolicyOf(config: Config): RuntimePolicy {
  if (config.security_mode === "permissive") {
    return { runtime: config.container_runtime ?? null, strict: false };
  }
  const runtime = config.container_runtime ?? "runsc";
  if (!runtime.startsWith("runsc")) {
    throw new ConfigError(
      `container_runtime = "${runtime}": security_mode strict requires runsc; set it or choose permissive`,
    );
  }
  return { runtime, strict: true };
}

/** The environment variables that an agent reads, each with its description. */
export function configHelp(): string {
  const lines = agentKeys.map((key) => {
    const name = `AIRLOCK_${key.toUpperCase()}`;
    return `  ${name.padEnd(26)} ${Config.shape[key].description ?? ""}`;
  });
  return [`  AIRLOCK_CONFIG             Configuration file; default: airlock.toml.`, ...lines].join(
    "\n",
  );
}

const agentKeys = [
  "api_url",
  "api_ca_file",
  "allow_plain_http",
  "agent_token",
  "agent_name",
  "agent_labels",
  "agent_gpus",
  "agent_job_types",
  "agent_images",
  "agent_networks",
  "agent_runtimes",
  "agent_max_memory",
  "agent_max_cpus",
  "agent_max_gpus",
  "agent_max_timeout",
  "agent_max_stdout_bytes",
  "agent_max_artifact_bytes",
  "agent_builds",
  "max_workers",
  "max_sessions",
  "warm_pool_size",
  "warm_pool_max",
  "warm_pool_idle_s",
  "docker_host",
  "container_runtime",
  "security_mode",
  "enable_seccomp",
  "drain_grace_s",
  "spool_dir",
  "allow_runtime_requirements",
  "enable_runtime_dependency_cache",
  "dependency_cache_dir",
  "dependency_cache_bytes",
  "image_registry",
  "image_registry_username",
  "image_registry_password",
  "max_image_bytes",
  "fetched_images_bytes",
  "build_cache_bytes",
  "max_built_bytes",
  "input_files_bytes",
  "pip_index_url",
  "pip_find_links",
  "pip_ca_file",
  "pip_hosts",
  "pip_proxy",
  "npm_registry",
  "apt_mirror",
  "data_dir",
  "log_level",
  "log_format",
] as const satisfies (keyof Config)[];
