import { describe, expect, test } from "vitest";
import { JobTypeDefinition } from "../wire/job-types.ts";
import { Config, ConfigError, loadConfig } from "./config.ts";

interface Example {
  /** The value in airlock.toml. */
  file: unknown;
  /** The text of AIRLOCK_<KEY>, and the value it gives. */
  env: string;
  gives: unknown;
  /** A refused value, and what its message says is allowed; missing if any text is allowed. */
  refused?: [value: unknown, allowed: string];
}

const key = "0123456789abcdef";
const otherKey = "fedcba9876543210";
const secret = `whsec_${"A".repeat(32)}`;
const boolean: Example = {
  file: false,
  env: "true",
  gives: true,
  refused: ["yes", "expected boolean"],
};
const number = (file: number, env: number, value: number, allowed: string): Example => ({
  file,
  env: String(env),
  gives: env,
  refused: [value, allowed],
});
const text = (file: string, env: string, refused?: [unknown, string]): Example => ({
  file,
  env,
  gives: env,
  ...(refused && { refused }),
});
const keys: Example = {
  file: [key],
  env: `${key}, ${otherKey}`,
  gives: [key, otherKey],
  refused: [["too-short"], "at least 16 characters"],
};

const list = (file: string, refused: Example["refused"]): Example => ({
  file: [file],
  env: `${file}, b*`,
  gives: [file, "b*"],
  ...(refused && { refused }),
});

const examples: Record<keyof Config, Example> = {
  host: text("127.0.0.2", "::1", ["", ">=1 characters"]),
  port: number(1, 9090, 65_536, "<=65535"),
  data_dir: text("a", "/var/lib/airlock", ["", ">=1 characters"]),
  database_url: text("file:a.db", "libsql://db.example"),
  database_auth_token: text("a", "b"),
  s3_endpoint: text("https://s3.example", "http://127.0.0.1:9000/s3", [
    "https://key:secret@s3.example",
    "no user, key or query",
  ]),
  s3_bucket: text("artifacts", "my.artifacts-1", ["a/b", "must be a bucket's name"]),
  s3_region: text("eu-central-1", "auto", ["", ">=1 characters"]),
  s3_access_key_id: text("a", "b", ["", ">=1 characters"]),
  s3_secret_access_key: text("a", "b", ["", ">=1 characters"]),
  s3_path_style: boolean,
  log_level: text("error", "debug", ["loud", '"debug"|"info"|"warning"|"error"']),
  log_format: text("text", "json", ["xml", '"text"|"json"']),
  allow_runtime_requirements: boolean,
  production_mode: boolean,
  auto_build: boolean,
  max_queue_size: number(5, 7, 0, ">=1"),
  default_timeout: number(5, 7, 0, ">=1"),
  max_timeout: number(5, 7, 86_401, "<=86400"),
  max_stdout_bytes: number(2048, 4096, 1023, ">=1024"),
  max_artifact_bytes: number(0, 7, -1, ">=0"),
  max_request_bytes: number(2048, 4096, 1023, ">=1024"),
  max_batch_bytes: number(2048, 4096, 1023, ">=1024"),
  max_event_streams: number(1, 5000, 0, ">=1"),
  max_sessions_per_tenant: number(0, 7, -1, ">=0"),
  max_session_lifetime: number(5, 7, 604_801, "<=604800"),
  max_file_bytes: number(0, 2 ** 30, 6 * 2 ** 30, "<=5368709120"),
  max_files_bytes: number(0, 2 ** 40, -1, ">=0"),
  file_retention_hours: number(0.5, 48, 0, ">=0.001"),
  base_image: text("a", "python:3.12", ["", ">=1 characters"]),
  image_prefix: text("a", "registry.example/team", ["A", "an image's name"]),
  image_registry: text("registry.example:5000/team", "localhost:5000", [
    "https://a.b",
    "registry's host",
  ]),
  image_registry_username: text("a", "b", ["", ">=1 characters"]),
  image_registry_password: text("a", "b", ["", ">=1 characters"]),
  max_image_bytes: number(0, 2 ** 30, -1, ">=0"),
  input_files_bytes: number(2 ** 20, 2 ** 30, 5, ">=1048576"),
  fetched_images_bytes: number(2 ** 20, 2 ** 30, 5, ">=1048576"),
  build_cache_bytes: number(0, 2 ** 30, -1, ">=0"),
  max_built_bytes: number(2 ** 20, 2 ** 30, 5, ">=1048576"),
  build_timeout: number(5, 7, 0, ">=1"),
  tenant_job_types: number(0, 5, 1001, "<=1000"),
  job_types: {
    file: { ml: { memory_limit: "1g" } },
    env: '{"ml":{"memory_limit":"2g"}}',
    gives: { ml: JobTypeDefinition.parse({ memory_limit: "2g" }) },
    refused: [{ ml: { memory_limit: "1m" } }, "at least 32m"],
  },
  api_auth_enabled: boolean,
  api_keys: keys,
  operator_keys: keys,
  api_auth_header: text("X-Key", "X-Other", ["X Key", "a header name"]),
  api_docs_public: boolean,
  allow_unauthenticated_network_access: boolean,
  api_rate_limit_enabled: boolean,
  api_rate_limit_requests: number(5, 7, 0, ">=1"),
  api_rate_limit_window_seconds: number(5, 7, 0, ">=1"),
  compat: {
    file: ["piston"],
    env: "dify,sandbox-fusion",
    gives: ["dify", "sandbox-fusion"],
    refused: [["judge0"], '"sandbox-fusion"|"piston"|"dify"|"librechat"|"e2b"'],
  },
  compat_key: text(key, otherKey, ["short", "at least 16 characters"]),
  compat_held: number(5, 7, 0, ">=1"),
  allowed_hosts: {
    file: ["Tools.example"],
    env: "tools.example,[::1]",
    gives: ["tools.example", "[::1]"],
    refused: [["tools.example:80"], "a host's name or address, without a port"],
  },
  allowed_origins: {
    file: ["https://App.example"],
    env: "https://app.example,http://localhost:6274",
    gives: ["https://app.example", "http://localhost:6274"],
    refused: [["https://app.example/"], "an origin, such as https://app.example, without a path"],
  },
  trusted_proxies: {
    file: ["10.0.0.1"],
    env: "10.0.0.0/8,fd00::1",
    gives: ["10.0.0.0/8", "fd00::1"],
    refused: [["proxy"], "an IP address or a CIDR block"],
  },
  webhook_endpoints: {
    file: { orders: { url: "https://orders.example/hook", secrets: [secret] } },
    env: JSON.stringify({
      a: { url: "http://10.0.0.1", events: ["execution.oom"], secrets: [secret] },
    }),
    gives: { a: { url: "http://10.0.0.1", events: ["execution.oom"], secrets: [secret] } },
    refused: [
      { a: { url: "https://a.example", secrets: ["whsec_short"] } },
      "24 to 64 random bytes",
    ],
  },
  webhook_callbacks: {
    file: { hosts: ["*.Example"], secrets: [secret] },
    env: JSON.stringify({ hosts: ["http://localhost:9000"], secrets: [secret, secret] }),
    gives: { hosts: ["http://localhost:9000"], secrets: [secret, secret] },
    refused: [{ hosts: ["https://a.example"], secrets: [secret] }, "must be a host such as"],
  },
  webhook_private_addresses: {
    file: ["127.0.0.1"],
    env: "10.0.0.0/8,fd00::1",
    gives: ["10.0.0.0/8", "fd00::1"],
    refused: [["localhost"], "an IP address or a CIDR block"],
  },
  audit_retention_days: number(31, 90, 30, ">=31"),
  dlq_retention_days: number(1, 0.5, 0, ">=0.001"),
  execution_retention_days: number(1, 0.5, -1, ">=0"),
  max_database_bytes: number(0, 2 ** 30, -1, ">=0"),
  agent_tokens: { ...keys, env: JSON.stringify([key, otherKey]) },
  stop_delay_s: number(0, 5, -1, ">=0"),
  poll_wait_s: number(1, 0.5, 61, "<=60"),
  liveness_s: number(20, 16.5, 0.3, ">=0.4"),
  lease_ttl_s: number(200, 60.5, 0.3, ">=0.4"),
  api_url: text("http://a", "https://airlock.example/x", ["ftp://a", "Invalid URL"]),
  api_ca_file: text("a", "/etc/ssl/own.pem", ["", ">=1 characters"]),
  allow_plain_http: boolean,
  agent_token: text(key, otherKey, ["too-short", "at least 16 characters"]),
  agent_name: text("a", "laptop", ["x".repeat(129), "<=128 characters"]),
  agent_labels: {
    file: { gpu: "a" },
    env: '{"zone":"b"}',
    gives: { zone: "b" },
    refused: [{ gpu: 1 }, "expected string"],
  },
  agent_gpus: {
    file: ["0"],
    env: "1,GPU-a1b2",
    gives: ["1", "GPU-a1b2"],
    refused: [["0", "0"], "must name each GPU once"],
  },
  agent_job_types: list("science", [[""], ">=1 characters"]),
  agent_images: list("python:3.13-slim", [[""], ">=1 characters"]),
  agent_networks: {
    file: ["none"],
    env: "none,bridge",
    gives: ["none", "bridge"],
    refused: [["host"], '"none"|"bridge"'],
  },
  agent_runtimes: list("runsc", [[""], ">=1 characters"]),
  agent_max_memory: text("64m", "2g", ["1m", "at least 32m"]),
  agent_max_cpus: number(1, 0.5, 0, ">0"),
  agent_max_gpus: number(0, 2, -1, ">=0"),
  agent_max_timeout: number(5, 7, 0, ">=1"),
  agent_max_stdout_bytes: number(2048, 4096, 1023, ">=1024"),
  agent_max_artifact_bytes: number(0, 7, -1, ">=0"),
  agent_builds: boolean,
  agent_tenant_builds: boolean,
  docker_host: text("unix:///a", "tcp://10.0.0.1:2375"),
  max_workers: number(1, 8, 0, ">=1"),
  max_sessions: number(0, 8, -1, ">=0"),
  warm_pool_size: number(0, 3, -1, ">=0"),
  warm_pool_max: number(0, 3, -1, ">=0"),
  warm_pool_idle_s: number(5, 7, 0, ">=1"),
  container_backend: text("zygote", "auto", ["forked", "auto"]),
  mother_image: text("python:3.12-slim", "airlock/python:3.13", ["", ">=1 characters"]),
  id_range_start: number(100_000, 2_000_000_000, 1000, ">=65536"),
  container_runtime: text("runc", "runsc", ["", ">=1 characters"]),
  security_mode: text("permissive", "strict", ["lax", '"permissive"|"strict"']),
  enable_seccomp: boolean,
  pip_index_url: text("http://a", "https://me:secret@pypi.example/simple", ["a", "Invalid URL"]),
  pip_find_links: text("a", "/srv/wheels", ["", ">=1 characters"]),
  pip_ca_file: text("a", "/etc/ssl/own.pem", ["", ">=1 characters"]),
  pip_hosts: {
    file: ["files.example"],
    env: "10.1.2.3:8081, [fd00::1]:80",
    gives: ["10.1.2.3:8081", "[fd00::1]:80"],
    refused: [["https://files.example/"], "must be a host in lower case"],
  },
  npm_registry: text("http://a", "https://me:secret@npm.example/path", ["a", "Invalid URL"]),
  apt_mirror: text("http://a", "http://10.0.0.1:8081/mirror", ["https://a", "Invalid URL"]),
  pip_proxy: text("http://proxy.example:3128", "http://me:secret@10.0.0.1:3128", [
    "https://proxy.example",
    "Invalid URL",
  ]),
  enable_runtime_dependency_cache: boolean,
  dependency_cache_dir: text("a", "/var/cache/airlock", ["", ">=1 characters"]),
  dependency_cache_bytes: number(2 ** 20, 2 ** 30, 1000, ">=1048576"),
  drain_grace_s: number(0, 2.5, -1, ">=0"),
  spool_dir: text("a", "/var/tmp"),
};
const cases = Object.entries(examples) as [keyof Config, Example][];
const envName = (name: string): string => `AIRLOCK_${name.toUpperCase()}`;

test("every key has an example here", () => {
  expect(Object.keys(examples).sort()).toEqual(Object.keys(Config.shape).sort());
});

test.each(cases)(
  "%s is read from the file, and from the environment before it",
  (name, example) => {
    const { file, env, gives } = example;
    expect(loadConfig({ [name]: file }, {})[name]).toEqual(Config.parse({ [name]: file })[name]);
    expect(loadConfig({ [name]: file }, { [envName(name)]: env })[name]).toEqual(gives);
  },
);

test.each(cases)("an empty AIRLOCK_ variable leaves %s to the file", (name, { file }) => {
  expect(loadConfig({ [name]: file }, { [envName(name)]: "" })).toEqual(
    loadConfig({ [name]: file }, {}),
  );
});

test("the variables of the command line and the clients are no configuration of the service", () => {
  const ofClients = { AIRLOCK_URL: "http://localhost:8080", AIRLOCK_KEY: "a-key" };
  expect(loadConfig({}, ofClients)).toEqual(loadConfig({}, {}));
});

describe("a value that is not allowed", () => {
  const secrets = new Set<string>([
    "api_keys",
    "operator_keys",
    "agent_tokens",
    "agent_token",
    "compat_key",
    "pip_index_url",
    "pip_proxy",
    "npm_registry",
    "s3_endpoint",
    "s3_secret_access_key",
    "image_registry_password",
    "webhook_endpoints",
  ]);
  const refusals = cases.flatMap(([name, { refused }]) =>
    refused ? [[name, ...refused] as const] : [],
  );

  test.each(refusals)(
    "the message about %s gives its name, its value and what is allowed",
    (name, value, allowed) => {
      const message = refusal({ [name]: value }, {});
      expect(message).toContain(name);
      expect(message).toContain(allowed);
      expect(message).toContain(secrets.has(name) ? "(secret)" : JSON.stringify(deepest(value)));
      expect(message.split("\n")).toHaveLength(1);
    },
  );
});

/** The wrong value, taken out of lists and tables with a single entry. */
function deepest(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  return deepest(Object.values(value)[0]);
}

describe("an unknown key is refused", () => {
  test.each([
    [{ prot: 1 }, {}, "unknown configuration key: prot"],
    [{}, { AIRLOCK_API_KEY: "hunter2" }, "unknown configuration key: api_key;"],
    [{}, { AIRLOCK_CONSTRUCTOR: "x" }, "unknown configuration key: constructor"],
    [{}, { AIRLOCK_API_PORT: "8080" }, "unknown configuration key: api_port"],
    [{}, { AIRLOCK_API_SERVICE_HOST: "my-host" }, "unknown configuration key: api_service_host"],
    [{}, { AIRLOCK_PORT: "tcp" }, 'port = "tcp": '],
    [
      { job_types: { ml: { memory: "1g" } } },
      {},
      "unknown configuration key in job_types.ml: memory",
    ],
    [{ job_types: { ml: { apt: ["-o"] } } }, {}, 'job_types.ml.apt.0 = "-o": must be a package of'],
    [
      { job_types: { ml: { preset: "documents", apt: ["jq", "a b"] } } },
      {},
      'job_types.ml.apt.1 = "a b": must be a package of Debian',
    ],
    [
      { job_types: { ml: { npm: ["https://a/b.tgz"] } } },
      {},
      'job_types.ml.npm.0 = "https://a/b.tgz": must be a package of npm\'s registry',
    ],
    [{ job_types: { ml: { preset: "x" } } }, {}, 'job_types.ml.preset = "x": '],
  ])("%j %j", (file, env, message) => {
    expect(refusal(file, env)).toContain(message);
  });

  test("but not a variable of another program", () => {
    expect(loadConfig({}, { AIRLOCKED: "1", PATH: "/bin" })).toEqual(loadConfig({}, {}));
  });

  test.each([
    ["AIRLOCK_API", "10.96.7.1"],
    ["AIRLOCK", "fd00::a1"],
  ])("nor what Kubernetes sets for the Service %s", (service, host) => {
    const port = `${service}_PORT_8080`;
    const links = {
      [`${service}_SERVICE_HOST`]: host,
      [`${service}_SERVICE_PORT`]: "8080",
      [`${service}_SERVICE_PORT_HTTP`]: "8080",
      [`${service}_PORT`]: `tcp://${host}:8080`,
      [`${port}_TCP`]: `tcp://${host}:8080`,
      [`${port}_TCP_PROTO`]: "tcp",
      [`${port}_TCP_PORT`]: "8080",
      [`${port}_TCP_ADDR`]: host,
      [`${service}_PORT_53_UDP`]: `udp://${host}:53`,
    };
    expect(loadConfig({}, links)).toEqual(loadConfig({}, {}));
  });
});

describe("a value that is not allowed", () => {
  test("in the environment gives the same message", () => {
    expect(refusal({}, { AIRLOCK_PORT: "http" })).toBe(
      'port = "http": Invalid input: expected number, received string',
    );
    expect(refusal({ port: 1 }, { AIRLOCK_PORT: "70000" })).toContain("port = 70000: ");
  });

  test("deep in a job type is shown with its path, without the rest", () => {
    const job_types = { ml: { env: { TOKEN: "hunter2" }, memory_limit: "7t" } };
    for (const [file, env] of [
      [{ job_types }, {}],
      [{}, { AIRLOCK_JOB_TYPES: JSON.stringify(job_types) }],
    ] as const) {
      expect(refusal(file, env)).toMatch(/^job_types\.ml\.memory_limit = "7t": must be a number/);
    }
  });

  test.each([
    [
      { dockerfile: "RUN true\n\n\nCOPY a b" },
      " line 4: COPY takes a heredoc (COPY <<EOF /opt/x): no files are sent with a build; RUN can fetch them",
    ],
    [{ dockerfile: "FROM a\nRUN b", base_image: "a" }, ": FROM stands beside base_image"],
    [{ dockerfile: "FROM a\nRUN b", preset: "science" }, ": FROM stands beside preset"],
    [{ dockerfile: "Dockerfile" }, ": is read from a file by the API on Node only"],
  ])("in %j is said with the job type and the line", (report, message) => {
    expect(refusal({ job_types: { report } }, {})).toBe(`job type report, dockerfile${message}`);
  });

  test.each([
    ["npm_registry", "https://me:hunter2%@npm.example", "https://me:a%25%C3%A4@npm.example"],
    ["npm_registry", "https://hunter2%zz@npm.example", "https://a%25zz@npm.example"],
    ["pip_proxy", "http://me%FF:hunter2@proxy.example", "http://me:a%25@proxy.example"],
  ])("is %s with a %% that cannot be decoded", (name, wrong, right) => {
    const message = `${name} = (secret): a % in the user or password must be written as %25`;
    expect(refusal({ [name]: wrong }, {})).toBe(message);
    expect(loadConfig({ [name]: right }, {})).toMatchObject({ [name]: right });
  });

  test("never shows the secrets of webhooks", () => {
    const right = `whsec_${"A".repeat(32)}`;
    const wrong = "whsec_wrong-but-secret";
    for (const config of [
      { webhook_callbacks: { hosts: ["a.example"], secrets: [wrong] } },
      { webhook_callbacks: wrong },
      { webhook_endpoints: { a: { url: "https://a.example", secrets: [right, wrong] } } },
      { webhook_endpoints: { a: { url: `ftp://${wrong}`, secrets: [right] } } },
    ]) {
      expect(refusal(config, {})).toContain("(secret)");
      expect(refusal(config, {})).not.toContain("wrong");
    }
  });

  test("is a lease_ttl_s below liveness_s", () => {
    expect(refusal({ lease_ttl_s: 10 }, {})).toBe(
      "lease_ttl_s = 10: must be at least liveness_s (30): set it to 30 or more, or liveness_s to 10 or less",
    );
    expect(refusal({}, { AIRLOCK_LIVENESS_S: "200" })).toBe(
      "lease_ttl_s: must be at least liveness_s (200): set it to 200 or more, or liveness_s to 180 or less",
    );
    expect(loadConfig({ lease_ttl_s: 10, liveness_s: 10 }, {})).toMatchObject({ lease_ttl_s: 10 });
  });

  test("has its own line in the message if there are several", () => {
    expect(refusal({ port: -1, log_level: "loud" }, {}).split("\n")).toHaveLength(2);
  });
});

describe("a secret is never in a message", () => {
  const secret = "hunter2";
  test.each<[string, Record<string, unknown>, Record<string, string>]>([
    ["a short key", { api_keys: [secret] }, {}],
    ["a key that is no list", { api_keys: { a: secret } }, {}],
    ["a key from the environment", {}, { AIRLOCK_API_KEYS: secret }],
    ["an agent's token", { agent_token: secret }, {}],
    ["accepted tokens", {}, { AIRLOCK_AGENT_TOKENS: `["${secret}"]` }],
    ["a database token", { database_auth_token: [secret] }, {}],
    ["a key in an address", { s3_endpoint: `https://a:${secret}@s3.example` }, {}],
    ["an S3 key", { s3_secret_access_key: [secret] }, {}],
    ["a variable of a job type", { job_types: { ml: { env: { "A-B": secret } } } }, {}],
    ["a variable that is no text", { job_types: { ml: { env: { A: { b: secret } } } } }, {}],
    ["variables that are no table", { job_types: { ml: { env: secret } } }, {}],
    ["malformed job types", {}, { AIRLOCK_JOB_TYPES: `{"ml":{"env":{"A":"${secret}"}` }],
    ["a job type under a bad name", { job_types: { ML: { env: { A: secret } } } }, {}],
  ])("%s", (_title, file, env) => {
    const message = refusal(file, env);
    expect(message).not.toContain(secret);
    expect(message).toContain("(secret)");
  });
});

/** The message with which this configuration is refused. */
function refusal(file: Record<string, unknown>, env: Record<string, string>): string {
  try {
    loadConfig(file, env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("the configuration was accepted");
}
