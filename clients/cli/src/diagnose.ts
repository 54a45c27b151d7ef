import {
  type Airlock,
  connect,
  ConnectionError,
  type Health,
  type OwnKey,
  type PoolAgent,
  ProblemError,
  UnauthorizedError,
} from "../../typescript/src/index.ts";
import type { Settings } from "./settings.ts";

/** One thing that was looked at. */
export interface Finding {
  readonly ok: boolean;
  readonly what: string;
  /** What to do about it. */
  readonly mend?: string;
}

const once = { retries: 0, timeoutMs: 10_000 } as const;

/** Checks everything between this command and a running job. Stops when further checks cannot succeed. */
export async function diagnose(airlock: Airlock, { url, key }: Settings): Promise<Finding[]> {
  const findings: Finding[] = [];
  const health = await reach(airlock, url, findings);
  const own = health && (await checkKey(airlock, key, findings));
  if (!health || !own) return findings;
  const lacks = (...scopes: OwnKey["scopes"]) => scopes.some((one) => !own.scopes.includes(one));
  const isServed = lacks("read", "monitor")
    ? checkEngines(health, findings)
    : await checkAgents(airlock, health, findings);
  findings.push(...checkQueue(health));
  if (lacks("run"))
    findings.push({ ok: true, what: "no job is tried: the key lacks the scope run" });
  else if (isServed) findings.push(await tryJob(airlock));
  return findings;
}

async function reach(
  airlock: Airlock,
  url: string,
  findings: Finding[],
): Promise<Health | undefined> {
  try {
    const health = await airlock.api.getHealth(once);
    findings.push({ ok: true, what: `Airlock ${health.version} answers at ${url}` });
    return health;
  } catch (error) {
    if (error instanceof ConnectionError) {
      const mend =
        "start it (npm start), or give its address: --url, AIRLOCK_URL, airlock login; check what is between, such as a proxy";
      findings.push({ ok: false, what: error.message, mend });
    } else {
      const mend = "check the address; a proxy before the service may answer in its place";
      findings.push({
        ok: false,
        what: `${url} answers, but not as Airlock: ${textOf(error)}`,
        mend,
      });
    }
    return undefined;
  }
}

async function checkKey(
  airlock: Airlock,
  key: string | undefined,
  findings: Finding[],
): Promise<OwnKey | undefined> {
  try {
    const own = await airlock.api.getOwnKey(once);
    findings.push({ ok: true, what: await wordsOfKey(airlock, key, own) });
    return own;
  } catch (error) {
    const isRefused = error instanceof UnauthorizedError;
    findings.push({
      ok: false,
      what: isRefused
        ? key === undefined
          ? "the service needs an API key"
          : "the service does not know the key"
        : `the key cannot be checked: ${textOf(error)}`,
      mend: isRefused
        ? "airlock login, --key or AIRLOCK_KEY, with a key that an operator made, or one of api_keys in the service's configuration"
        : "look at the service's log for the correlation id",
    });
    return undefined;
  }
}

/** Whose a key is, and what it may do. */
export const describeKey = ({ name, tenant, scopes }: OwnKey): string =>
  `${name} of tenant ${tenant}, for ${scopes.join(", ")}`;

/** A service that asks for no key takes every key. */
async function wordsOfKey(airlock: Airlock, key: string | undefined, own: OwnKey): Promise<string> {
  if (key === undefined) return "no key is needed";
  const without = connect({ url: airlock.url });
  const isNeeded = await without.api.getOwnKey(once).then(
    () => false,
    (error: unknown) => error instanceof UnauthorizedError,
  );
  return isNeeded
    ? `the key is accepted: ${describeKey(own)}`
    : "no key is needed: the one that was given is not checked";
}

const noAgent: Finding = {
  ok: false,
  what: "no agent is connected, so no job can run",
  mend: "on a machine with Docker or Podman: npm run agent (airlock agents invite gives its code)",
};

/** @returns Whether an agent can run jobs. */
async function checkAgents(
  airlock: Airlock,
  { version }: Health,
  findings: Finding[],
): Promise<boolean> {
  const { agents } = await airlock.api.getPoolStats(once);
  findings.push(...agents.flatMap((agent) => checkAgent(agent, version)));
  if (agents.length === 0) findings.push(noAgent);
  return agents.some(({ state }) => state === "idle" || state === "working");
}

/** For a key that may not see agents. */
function checkEngines({ docker_available: isServed }: Health, findings: Finding[]): boolean {
  const hint = "a key with the scopes read and monitor shows which ones";
  findings.push(isServed ? { ok: true, what: `agents are connected; ${hint}` } : noAgent);
  return isServed;
}

function checkAgent(agent: PoolAgent, version: string): Finding[] {
  const { name, state, problem, engine } = agent;
  const isWell = state === "idle" || state === "working";
  const about: Finding[] = [
    {
      ok: isWell,
      what: `agent ${name}: ${isWell ? `${state}, ${agent.running} of ${agent.slots} slots in use` : (problem ?? state)}`,
      ...(!isWell && { mend: mendAgent(agent) }),
    },
  ];
  if (agent.version !== version) {
    about.push({
      ok: false,
      what: `agent ${name} has version ${agent.version}, the service ${version}`,
      mend: "update and restart the older one",
    });
  }
  if (isWell && typeof engine.fork_problem === "string") {
    about.push({
      ok: true,
      what: `agent ${name} starts a container for each job: ${engine.fork_problem}`,
    });
  }
  return about;
}

function mendAgent({ state, engine, breaker, id }: PoolAgent): string {
  if (state === "silent") return "start it again on its host: npm run agent";
  if (state === "draining") return `give it work again: airlock agents resume ${id}`;
  if (!engine.available) return "start the container engine on its host, or set docker_host";
  if (breaker.state === "open") {
    const errors = (engine.errors ?? []).map(({ operation, kind }) => `${operation}: ${kind}`);
    const seen = errors.length > 0 ? ` (${errors.slice(0, 3).join(", ")})` : "";
    return `its engine fails${seen}: look at the engine's log and at the disk (df -h) of its host`;
  }
  return "look at the agent's log";
}

function checkQueue({ queue_stats: queue }: Health): Finding[] {
  if (queue.pending < queue.max_queue_size) return [];
  return [
    {
      ok: false,
      what: `the queue is full: ${queue.pending} of ${queue.max_queue_size}`,
      mend: "add agents or slots, raise max_queue_size, or cancel jobs (airlock ps -s queued)",
    },
  ];
}

/** Runs a job, which shows what no other check finds: a full disk, a missing image. */
async function tryJob(airlock: Airlock): Promise<Finding> {
  try {
    const executeRequest = { code: "print('ok')", timeout: 20 };
    const result = await airlock.api.execute({ executeRequest }, { retries: 0, timeoutMs: 60_000 });
    if (result.success) return { ok: true, what: "a job runs" };
    const { type = "failed", message = "" } = result.error ?? {};
    return { ok: false, what: `a job fails: ${type}: ${message}`, mend: "look at the agent's log" };
  } catch (error) {
    return {
      ok: false,
      what: `a job is refused: ${textOf(error)}`,
      mend: isFull(error)
        ? "free space on the service's disk (df -h), or raise max_database_bytes"
        : "look at the service's log for the correlation id",
    };
  }
}

const isFull = (error: unknown): boolean =>
  /disk|full|max_database_bytes|space/i.test(textOf(error));

function textOf(error: unknown): string {
  if (error instanceof ProblemError) return error.problem?.detail ?? error.message;
  return error instanceof Error ? error.message : String(error);
}
