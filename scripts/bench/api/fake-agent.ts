import { randomUUID } from "node:crypto";
import type { PollReply, PollRequest, ResultReport } from "../../../shared/wire/agent/lease.ts";
import type { ApiService } from "./service.ts";

/** An agent without an engine: every job that it leases has succeeded at once. */
export class FakeAgent {
  readonly #api: ApiService;
  readonly #status: Omit<PollRequest, "wait_s">;

  constructor(api: ApiService, slots: number) {
    this.#api = api;
    this.#status = {
      agent: {
        id: randomUUID(),
        name: "bench",
        version: "0",
        labels: {},
        accepts: { job_types: null, builds: true },
      },
      slots,
      gpus: { total: 0, free: 0 },
      warm: 0,
      pool: [],
      engine: { available: true, version: null, runtimes: ["runc"] },
      breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
      leases: [],
      builds: [],
      images: [],
      free_slots: slots,
      free_builds: 0,
      cancelling: [],
      is_new: false,
    };
  }

  /** Leases jobs for all its slots, waiting up to `waitS` for the first; their lease ids. */
  async poll(waitS: number): Promise<string[]> {
    const { text } = await this.#api.send("POST", "/agent/v1/poll", {
      ...this.#status,
      wait_s: waitS,
    });
    return (JSON.parse(text) as PollReply).jobs.map(({ lease_id }) => lease_id);
  }

  /** Reports that the agent lives, without renewing its leases. */
  async live(): Promise<void> {
    await this.#api.send("POST", "/agent/v1/renew", this.#status);
  }

  /** Posts output of a running job. */
  async print(leaseId: string, offset: number, text: string): Promise<void> {
    const part = { stream: "stdout", offset, data_base64: btoa(text) };
    await this.#api.send("POST", `/agent/v1/leases/${leaseId}/logs`, { parts: [part] });
  }

  async finish(leaseId: string): Promise<void> {
    await this.#api.send("POST", `/agent/v1/leases/${leaseId}/result`, succeeded);
  }
}

const succeeded: ResultReport = {
  status: "succeeded",
  exit_code: 0,
  error: null,
  stdout_base64: btoa("hello\n"),
  stderr_base64: "",
  stdout_truncated: false,
  stderr_truncated: false,
  output_json: null,
  timing: {
    startup_ms: 1,
    dep_install_ms: 0,
    execution_ms: 2,
    total_ms: 3,
    phase_at_exit: "completed",
  },
  resource_usage: { max_rss_mb: 9.5, cpu_time_ms: 3, wall_time_ms: 4 },
  job_ref: null,
  container_runtime: "runc",
};
