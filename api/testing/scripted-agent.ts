import {
  type AgentStatus,
  type LeasedBuild,
  type LeasedJob,
  type LeasedSession,
  PollReply,
  type PollRequest,
  RenewReply,
  ResultReply,
  type ResultReport,
  type SessionReady,
  takeHeader,
} from "../../shared/wire/leases.ts";

/** An answer of the service with its whole body. */
export interface Reply {
  status: number;
  headers: Headers;
  text: string;
}

interface App {
  request(path: string, init: RequestInit): Response | Promise<Response>;
}

/**
 * An agent without an engine: it uses the agents' protocol over HTTP and does what a test says. Each
 * instance stands for one agent process.
 */
export class ScriptedAgent {
  readonly id = crypto.randomUUID();
  /** Leases that it knows; each poll lists them. */
  readonly held = new Set<string>();
  /** Sessions that it has room for; each poll lists those that it holds. */
  maxSessions = 0;
  readonly heldSessions = new Set<string>();
  /** Leases that may be open. */
  readonly #given = new Set<string>();
  readonly #fetch: App["request"];
  readonly #token: string;

  /** @param api The address of the service, or an app in this process; none if it sends nothing. */
  constructor(api: string | App = "http://unused", token = "") {
    this.#fetch = (path, init) =>
      typeof api === "string" ? fetch(api + path, init) : api.request(path, init);
    this.#token = token;
  }

  status(): AgentStatus {
    const accepts = { job_types: null, builds: true, inputs: "frames" } as const;
    return {
      agent: { id: this.id, name: "scripted", version: "0", labels: { zone: "test" }, accepts },
      slots: 4,
      gpus: { total: 0, free: 0 },
      warm: 1,
      pool: [{ job_type: "default", runtime: null, ready: 1, starting: 2, in_use: 0 }],
      engine: { available: true, version: "20.10", runtimes: ["runc", "runsc"] },
      breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
      leases: [...this.held],
      builds: [],
      ...(this.maxSessions > 0 && { sessions: [...this.heldSessions] }),
      images: [],
    };
  }

  /** The message of a poll that does not wait. */
  pollRequest(changes: Partial<PollRequest> = {}): PollRequest {
    const asked = { free_slots: 4, free_builds: 0, cancelling: [], is_new: false, wait_s: 0 };
    const room = this.maxSessions > 0 && {
      free_sessions: this.maxSessions - this.heldSessions.size,
    };
    return { ...this.status(), ...asked, ...room, ...changes };
  }

  /** One poll; it does not wait unless `wait_s` says so. */
  async poll(changes: Partial<PollRequest> = {}, signal?: AbortSignal): Promise<PollReply> {
    const reply = PollReply.parse(await this.#accepted("/poll", this.pollRequest(changes), signal));
    for (const { lease_id } of reply.jobs) {
      this.held.add(lease_id);
      this.#given.add(lease_id);
    }
    for (const { lease_id } of reply.sessions ?? []) this.heldSessions.add(lease_id);
    for (const leaseId of reply.lost) this.heldSessions.delete(leaseId);
    return reply;
  }

  async renew(changes: Partial<AgentStatus> = {}): Promise<RenewReply> {
    return RenewReply.parse(await this.#accepted("/renew", { ...this.status(), ...changes }));
  }

  /** Polls until it gets a job. */
  async takeJob(): Promise<LeasedJob> {
    for (;;) {
      const { jobs } = await this.poll({ free_slots: 1, wait_s: 2 });
      if (jobs[0]) return jobs[0];
    }
  }

  /** Polls until it gets a session. */
  async takeSession(): Promise<LeasedSession> {
    for (;;) {
      const { sessions = [] } = await this.poll({ free_slots: 0, wait_s: 2 });
      if (sessions[0]) return sessions[0];
    }
  }

  /** Takes a session and says that it is ready. */
  async startSession(): Promise<LeasedSession> {
    const session = await this.takeSession();
    await this.postSession(session.lease_id, "ready", readyReport);
    return session;
  }

  /** Polls until it gets a call. */
  async takeCall(): Promise<LeasedJob> {
    for (;;) {
      const { jobs } = await this.poll({ free_slots: 0, wait_s: 2 });
      if (jobs[0]) return jobs[0];
    }
  }

  /** Posts for the lease of a session: `ready`, `ended`, `release`. */
  async postSession(leaseId: string, what: string, body: object): Promise<Reply> {
    return this.send("POST", `/sessions/${leaseId}/${what}`, JSON.stringify(body));
  }

  /** Polls until it gets a build. */
  async takeBuild(changes: Partial<PollRequest> = {}): Promise<LeasedBuild> {
    for (;;) {
      const { builds } = await this.poll({ free_slots: 0, free_builds: 1, wait_s: 2, ...changes });
      if (builds[0]) return builds[0];
    }
  }

  /** Posts for the lease of a build: `logs`, `result`, `release`. */
  async postBuild(leaseId: string, what: string, body: object): Promise<Reply> {
    return this.send("POST", `/builds/${leaseId}/${what}`, JSON.stringify(body));
  }

  /** Posts for a lease: `started`, `logs`, `result`, `release`. */
  async post(
    leaseId: string,
    what: string,
    body: object,
    headers: Record<string, string> = {},
  ): Promise<Reply> {
    return this.send("POST", `/leases/${leaseId}/${what}`, JSON.stringify(body), headers);
  }

  /** Ends a lease like `result`, and takes the job in the answer. */
  async resultAndTake(
    leaseId: string,
    changes: Partial<ResultReport> = {},
  ): Promise<{ reply: Reply; jobs: LeasedJob[] }> {
    const body = { ...success, ...changes };
    const reply = await this.post(leaseId, "result", body, { [takeHeader]: "1" });
    if (reply.status !== 200) return { reply, jobs: [] };
    this.#ended(leaseId);
    const { jobs } = ResultReply.parse(JSON.parse(reply.text));
    for (const { lease_id } of jobs) {
      this.held.add(lease_id);
      this.#given.add(lease_id);
    }
    return { reply, jobs };
  }

  async upload(
    leaseId: string,
    name: string,
    content: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
  ): Promise<Reply> {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    const path = `/leases/${leaseId}/artifacts/${encodeURIComponent(name)}`;
    return this.send("PUT", path, bytes, { "X-Airlock-SHA256": await sha256(bytes), ...headers });
  }

  /** Ends a lease. By default the exit code is 0 and nothing was written. */
  async result(leaseId: string, changes: Partial<ResultReport> = {}): Promise<Reply> {
    const reply = await this.post(leaseId, "result", { ...success, ...changes });
    if (reply.status === 200) this.#ended(leaseId);
    return reply;
  }

  #ended(leaseId: string): void {
    this.held.delete(leaseId);
    this.#given.delete(leaseId);
  }

  /** Says that it stops, or that another agent is gone, as the next one on the host of that does. */
  async leave(crashed = false, agent_id = this.id): Promise<Reply> {
    return this.send("POST", "/leave", JSON.stringify({ agent_id, crashed }));
  }

  /** Ends its open leases as cancelled, and leaves. */
  async close(): Promise<void> {
    const error = { type: "cancelled", message: "", phase: "execution" } as const;
    for (const leaseId of this.#given) {
      await this.result(leaseId, { status: "cancelled", exit_code: null, error });
    }
    await this.leave();
  }

  async get(path: string): Promise<Reply> {
    return this.send("GET", path, undefined);
  }

  async send(
    method: string,
    path: string,
    body: string | Uint8Array<ArrayBuffer> | undefined,
    headers: Record<string, string> = {},
    signal?: AbortSignal,
  ): Promise<Reply> {
    const response = await this.#fetch(`/agent/v1${path}`, {
      method,
      ...(body !== undefined && { body }),
      headers: {
        Authorization: `Bearer ${this.#token}`,
        "Content-Type": "application/json",
        ...headers,
      },
      ...(signal && { signal }),
    });
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  async #accepted(path: string, body: object, signal?: AbortSignal): Promise<unknown> {
    const reply = await this.send("POST", path, JSON.stringify(body), {}, signal);
    if (reply.status !== 200) throw new Error(`${path}: ${reply.status} ${reply.text}`);
    return JSON.parse(reply.text);
  }
}

/** The result of a run that wrote nothing. */
export const success: ResultReport = {
  status: "succeeded",
  exit_code: 0,
  error: null,
  stdout_base64: "",
  stderr_base64: "",
  stdout_truncated: false,
  stderr_truncated: false,
  output_json: null,
  timing: {
    startup_ms: 21,
    dep_install_ms: 0,
    execution_ms: 1500,
    total_ms: 1530,
    phase_at_exit: "completed",
  },
  resource_usage: { max_rss_mb: 9.5, cpu_time_ms: 12, wall_time_ms: 1500 },
  job_ref: null,
  container_runtime: null,
};

export const readyReport: SessionReady = {
  job_ref: null,
  container_runtime: "runc",
  container_backend: "zygote",
  python_version: "3.13.2",
};

export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
