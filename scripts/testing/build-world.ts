import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rawEngine, removeImages } from "../../agent/sandbox/testing/raw-engine.ts";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import type { Build, BuildResult } from "../../shared/wire/build.ts";
import type { Problem } from "../../shared/wire/errors.ts";
import type {
  ExecutionRecord,
  InProgressResult,
  SubmittedJob,
  SyncResult,
} from "../../shared/wire/execution.ts";
import type { JobTypeView } from "../../shared/wire/job-type.ts";
import { jsonRequest } from "../command/json-request.ts";

/** What was answered: what was asked for, or a problem. */
type Answer<T> = Omit<T, "status" | "error"> & { status: unknown; error?: unknown };

type Api = { readonly url: string; close(): Promise<unknown> };

const token = "a-token-of-16-characters";

/** A real API with real agents on the real engine, and a folder of wheels to build from. */
export class BuildWorld {
  /** Names agents, and begins the names of images. */
  readonly prefix = `airlock-test-${randomUUID()}`;
  readonly folder = mkdtempSync(join(tmpdir(), "airlock-job-types-"));
  readonly #agents: AgentProcess[] = [];
  readonly #apis: Api[] = [];

  readonly apiVars: Record<string, string> = {
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_IMAGE_PREFIX: this.prefix,
    // Most tests have one host, where it would only take its time.
    AIRLOCK_MAX_IMAGE_BYTES: "0",
    // Longer than a busy machine takes to start an API or an agent again.
    AIRLOCK_LEASE_TTL_S: "15",
    AIRLOCK_LIVENESS_S: "15",
    AIRLOCK_POLL_WAIT_S: "2",
    AIRLOCK_JOB_TYPES: JSON.stringify({
      science: { requirements: ["airlock_probe"], preload: ["airlock_probe"] },
      broken: { requirements: ["no-such-package==9"] },
    }),
  };

  /** Has the world use an API, and close it in the end. */
  async use<T extends Api>(starting: Promise<T>): Promise<T> {
    const api = await starting;
    this.#apis.push(api);
    return api;
  }

  get url(): string {
    return this.#apis.at(-1)?.url ?? "";
  }

  async addAgent(vars: Record<string, string> = {}): Promise<AgentProcess> {
    const agent = startAgent({
      AIRLOCK_API_URL: this.url,
      AIRLOCK_AGENT_TOKEN: token,
      AIRLOCK_AGENT_NAME: this.prefix,
      AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
      // Waiting containers would keep images from being removed.
      AIRLOCK_WARM_POOL_SIZE: "0",
      AIRLOCK_PIP_FIND_LINKS: this.folder,
      ...vars,
    });
    this.#agents.push(agent);
    await agent.ready;
    return agent;
  }

  async build(name: string, tag?: string): Promise<Answer<BuildResult>> {
    const query = tag === undefined ? "" : `?version_tag=${tag}`;
    return this.#send<BuildResult>("POST", `/job-types/${name}/build${query}`);
  }

  lastBuild(name: string) {
    return this.#send<Build>("GET", `/job-types/${name}/build`);
  }

  jobType(name: string) {
    return this.#send<JobTypeView>("GET", `/job-types/${name}`);
  }

  async imageExists(name: string): Promise<boolean> {
    return (await this.jobType(name)).image_exists;
  }

  execute(job_type: string, code: string) {
    return this.#send<SyncResult>("POST", "/execute", { code, job_type });
  }

  submit(job_type: string, code: string) {
    return this.#send<SubmittedJob>("POST", "/execute/async", { code, job_type });
  }

  record(id: string) {
    return this.#send<ExecutionRecord>("GET", `/executions/${id}?view=full`);
  }

  cancel(id: string) {
    return this.#send<object>("POST", `/jobs/${id}/cancel`);
  }

  inProgress(id: string) {
    return this.#send<InProgressResult>("GET", `/jobs/${id}/result`);
  }

  result(id: string) {
    return this.#send<ExecutionRecord>("GET", `/jobs/${id}/result?wait=true&timeout=240&view=full`);
  }

  /** Ids of the images that were built here and still are there. */
  async images(): Promise<string[]> {
    const filters = { label: ["io.airlock.repository"] };
    const built = await rawEngine.listImages({ filters });
    return built
      .filter(({ Labels }) => Labels["io.airlock.repository"]?.includes(this.prefix))
      .map(({ Id }) => Id);
  }

  /** Ids of the containers of its agents. */
  async containers(): Promise<string[]> {
    const filters = { label: [`io.airlock.owner=${this.prefix}`] };
    return (await rawEngine.listContainers({ all: true, filters })).map(({ Id }) => Id);
  }

  async close(): Promise<void> {
    for (const { process } of this.#agents) process.kill("SIGTERM");
    await Promise.all(this.#agents.map(({ exit }) => exit));
    for (const api of this.#apis) await api.close();
    await removeImages(...(await this.images()));
    rmSync(this.folder, { recursive: true });
  }

  async #send<T>(method: string, path: string, body?: object): Promise<Answer<T>> {
    const response = await fetch(this.url + path, jsonRequest(method, body));
    return (await response.json()) as Answer<T> & Problem;
  }
}
