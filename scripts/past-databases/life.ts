import { createHash, randomUUID } from "node:crypto";
import { jsonRequest } from "../command/json-request.ts";

type Json = Record<string, unknown>;

/** The service that is used. */
export interface Service {
  url: string;
  key: string;
  token: string;
}

/** What the service answered for all that it keeps, at the end of its life. */
export interface Answers {
  executions: Json[];
  deadLetters: Json[];
  builds: Json[];
}

/** Job types of the service: one to build well, one whose build fails, one whose build waits. */
export const jobTypes = {
  science: { requirements: ["numpy==2.3.4"] },
  broken: { requirements: ["no-such-package"] },
  waiting: { requirements: ["pandas==2.2.0"] },
};

const timing = {
  startup_ms: 21,
  dep_install_ms: 0,
  execution_ms: 1500,
  total_ms: 1530,
  phase_at_exit: "completed",
};
const success = {
  status: "succeeded",
  exit_code: 0,
  error: null,
  stdout_base64: btoa("hello\n"),
  stderr_base64: btoa("careful\n"),
  stdout_truncated: false,
  stderr_truncated: true,
  output_json: '{"n":3}',
  timing,
  resource_usage: { max_rss_mb: 9.5, cpu_time_ms: 12, wall_time_ms: 1500 },
  job_ref: `default@sha256:${"4e".repeat(32)}`,
  container_runtime: "runc",
};
const ended = (status: string, type: string, exit_code: number | null) => ({
  ...success,
  status,
  exit_code,
  error: { type, message: `it was ${type}`, phase: "execution" },
  output_json: null,
});

/** Leaves executions in every state, dead letters, builds, artifacts and logs behind. */
export async function live(service: Service): Promise<Answers> {
  const client = caller(service.url, { "X-API-Key": service.key });
  const agent = caller(`${service.url}/agent/v1`, { Authorization: `Bearer ${service.token}` });
  const status = {
    agent: {
      id: randomUUID(),
      name: "past",
      version: "0.1.0",
      labels: { zone: "lab" },
      accepts: { job_types: null, builds: true },
    },
    slots: 4,
    gpus: { total: 0, free: 0 },
    warm: 1,
    pool: [{ job_type: "default", runtime: null, ready: 1, starting: 2, in_use: 0 }],
    engine: { available: true, version: "20.10", runtimes: ["runc", "runsc"] },
    breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
    leases: [] as string[],
    builds: [],
    images: ["python:3.13-slim"],
  };
  const asked = { free_slots: 0, free_builds: 0, cancelling: [], is_new: false, wait_s: 5 };
  const poll = async (more: Json): Promise<Json> =>
    agent("POST", "/poll", { ...status, ...asked, ...more });
  const take = async (): Promise<string> => {
    const [job] = (await poll({ free_slots: 1 }))["jobs"] as { lease_id: string }[];
    status.leases.push(job!.lease_id);
    return job!.lease_id;
  };
  const post = (lease: string, what: string, body: Json) =>
    agent("POST", `/leases/${lease}/${what}`, body);
  const finish = async (lease: string, result: Json): Promise<void> => {
    await post(lease, "result", result);
    status.leases = status.leases.filter((id) => id !== lease);
  };
  const submit = async (code: string, more: Json = {}): Promise<string> => {
    const reply = await client("POST", "/execute/async", { code, input_data: { code }, ...more });
    return reply["job_id"] as string;
  };

  await poll({ wait_s: 0 });
  const first = await submit("print('hello')", { idempotency_key: "answer-1", timeout: 60 });
  const lease = await take();
  await post(lease, "started", { job_ref: success.job_ref });
  await agent("PUT", `/leases/${lease}/artifacts/sub%2Fnote.txt`, "kept");
  await finish(lease, success);

  for (const [state, type, code] of [
    ["failed", "value_error", 1],
    ["timeout", "execution_timeout", null],
    ["oom", "oom", 137],
  ] as const) {
    await submit(`raise SystemExit("${type}")`);
    await finish(await take(), ended(state, type, code));
  }
  const cancelled = await submit("print('never')");
  await client("POST", `/jobs/${cancelled}/cancel`);
  await client("POST", `/jobs/${first}/rerun`, {});
  await finish(await take(), success);
  await client("POST", `/jobs/${first}/fork`, { code: "print('forked')" });
  await finish(await take(), ended("failed", "key_error", 1));
  const sync = client("POST", "/execute", { code: "print('sync')" });
  await finish(await take(), success);
  await sync;

  await submit("print('runs')");
  const running = await take();
  await post(running, "started", { job_ref: null });
  await post(running, "logs", { stream: "stdout", offset: 0, data_base64: btoa("so far\n") });
  await submit("print('tried before')");
  await post(await take(), "release", {
    error: { type: "docker_error", message: "no space left", phase: "startup" },
  });
  await submit("print('waits')", { idempotency_key: "answer-2", requirements: ["humanize>=4"] });
  await submit("print('waits too')", { timeout: 120, startup_timeout: 90 });

  const builds = await liveBuilds(client, agent, poll);
  const all = async (path: string) => (await client("GET", path))["items"] as Json[];
  return {
    executions: await all("/executions?view=full&limit=1000"),
    deadLetters: await all("/dlq?limit=1000"),
    builds,
  };
}

type Call = ReturnType<typeof caller>;

async function liveBuilds(
  client: Call,
  agent: Call,
  poll: (more: Json) => Promise<Json>,
): Promise<Json[]> {
  const takeBuild = async (): Promise<string> => {
    const { builds } = (await poll({ free_builds: 1 })) as { builds: { lease_id: string }[] };
    return builds[0] ? builds[0].lease_id : takeBuild();
  };
  const unheard = new AbortController();
  const ask = (name: string, signal?: AbortSignal) =>
    client("POST", `/job-types/${name}/build?version_tag=v1.0.0`, undefined, signal);

  const built = ask("science");
  const good = await takeBuild();
  await agent("POST", `/builds/${good}/logs`, { offset: 0, data_base64: btoa("Collecting\n") });
  const digest = `sha256:${"4e".repeat(32)}`;
  const result = { status: "built", digest, python_version: "3.13.5", manifest_digest: null };
  await agent("POST", `/builds/${good}/result`, result);
  await built;
  const failed = ask("broken").catch(() => undefined);
  const error = { type: "dependency_error", message: "no such package", phase: "startup" };
  await agent("POST", `/builds/${await takeBuild()}/result`, { status: "failed", error });
  await failed;
  const waiting = ask("waiting", unheard.signal).catch(() => undefined);
  const read = (name: string) => client("GET", `/job-types/${name}/build`);
  while ((await read("waiting").catch(() => undefined)) === undefined);
  unheard.abort();
  await waiting;
  return Promise.all(Object.keys(jobTypes).map(read));
}

/** Sends JSON, or a text as the bytes of an artifact. */
function caller(base: string, headers: Record<string, string>) {
  return async (
    method: string,
    path: string,
    body?: Json | string,
    signal?: AbortSignal,
  ): Promise<Json> => {
    const request = jsonRequest(method, body, {
      ...headers,
      ...(typeof body === "string" && {
        "X-Airlock-SHA256": createHash("sha256").update(body).digest("hex"),
      }),
    });
    const response = await fetch(base + path, { ...request, ...(signal && { signal }) });
    const answer = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer}`);
    return answer === "" ? {} : (JSON.parse(answer) as Json);
  };
}
