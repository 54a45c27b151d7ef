import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import {
  type Airlock,
  connect,
  ConnectionError,
  type Health,
  type OwnKey,
  type PoolAgent,
  ProblemError,
  UnauthorizedError,
} from "../typescript/src/index.ts";
import { checkUrl, givenKey, type Settings, writeSettings } from "./connection.ts";
import { exitCode, ExitError, UsageError } from "./exit.ts";
import { readText } from "./files.ts";
import { consoleAddress } from "./follow.ts";
import { age, colorOf, parseSeconds } from "./terminal.ts";
import { addCommand, findOne, given, show, showList, type Tool } from "./tool.ts";

/** Commands about the service itself. */
export function addService(program: Command): void {
  addCommand(program, "login", "store the address and the key for later commands")
    .argument("[url]", "address of the service")
    .does(async ({ settings, terminal, globals }, url) => {
      const address = checkUrl(url ?? settings.url);
      // A stored key may be the one to replace.
      const key = givenKey(globals, process.env) ?? (await askForKey());
      const stored = { url: address, ...(key !== "" && { key }) };
      const own = await connect(stored).api.getOwnKey({ retries: 0 });
      const whose = key === "" ? "" : `: ${describeKey(own)}`;
      terminal.note(`stored in ${writeSettings(stored, process.env)}${whose}`);
    });

  addCommand(program, "health", "show how the service is").does(async (tool) => {
    const { airlock, terminal } = tool;
    const health = await airlock.api.getHealth();
    const { status, version, queue_stats: queue } = health;
    const engine = health.docker_available ? "available" : "not available";
    show(
      tool,
      health,
      `${colorOf(status, terminal.style)}  Airlock ${version} at ${airlock.url}`,
      `queue   ${queue.pending} waiting of at most ${queue.max_queue_size}`,
      `running ${queue.running} of at most ${queue.max_workers}`,
      `engine  ${engine}${health.forks_available ? "; jobs are forked" : ""}`,
    );
    return status === "healthy" ? 0 : exitCode.failed;
  });

  addCommand(program, "doctor", "say what is wrong and how to mend it").does(async (tool) => {
    const { style } = tool.terminal;
    // Without retries, which would print notes.
    const findings: Finding[] = [];
    const found = diagnose(connect(tool.settings), tool.settings);
    for await (const finding of found) findings.push(finding);
    const lines = findings.flatMap(({ ok, what, mend }) => [
      `${ok ? style("green", "ok") : style("red", "!!")}  ${what}`,
      ...(mend === undefined ? [] : [`    ${mend}`]),
    ]);
    show(tool, findings, ...lines);
    return findings.every(({ ok }) => ok) ? 0 : exitCode.failed;
  });

  addCommand(program, "open", "open the console")
    .argument("[job]", "id of a job to show, or the end of the id")
    .does(async ({ terminal, settings: { url } }, job) => {
      const address = job === undefined ? `${url}/console` : consoleAddress(url, job);
      terminal.line(address);
      if (process.stdout.isTTY) openInBrowser(address);
    });

  const mcp = "serve the Model Context Protocol on standard input and output";
  addCommand(program, "mcp", mcp).does(async ({ settings }) => {
    // It is most of the program: no other command loads it.
    const { serveMcp } = await import("../mcp/stdio.ts");
    serveMcp({ ...settings, version: program.version() ?? "" });
    // It ends with its input.
    await new Promise((resolve) => process.stdin.once("close", resolve));
  });

  addCommand(program, "api", "send any request, and print the answer")
    .argument("<method>", "GET, POST, PUT, DELETE …")
    .argument("<path>", "such as /executions?limit=1")
    .option("-d, --data <json>", "the body; @file or - reads it")
    .does(async ({ airlock, terminal }, method, path, { data }) => {
      if (!path.startsWith("/")) throw new UsageError(`the path begins with a slash: /${path}`);
      const body = await readBody(data);
      const answer = await airlock.request(path, {
        method: method.toUpperCase(),
        ...(body !== undefined && { body, headers: { "Content-Type": "application/json" } }),
      });
      if (!answer.body) return;
      const type = answer.headers.get("Content-Type") ?? "";
      if (type.startsWith("application/json") && process.stdout.isTTY) {
        return terminal.document(await answer.json());
      }
      for await (const part of answer.body) await terminal.write(part as Uint8Array);
    });
}

async function readBody(given: string | undefined): Promise<string | undefined> {
  if (given === undefined || !/^(-$|@)/.test(given)) return given;
  return readText(given === "-" ? given : given.slice(1));
}

/** Reads a key without showing it. */
async function askForKey(): Promise<string> {
  if (!process.stdin.isTTY) return (await readText("-")).trim();
  // It hides what is typed from here on, so the prompt comes after it.
  const hidden = createInterface({ input: process.stdin, terminal: true });
  process.stderr.write("API key (empty for none): ");
  // Ctrl-C and Ctrl-D close it.
  const closed = once(hidden, "close").then(() => undefined);
  const key = await Promise.race([hidden.question("").catch(() => undefined), closed]);
  hidden.close();
  process.stderr.write("\n");
  if (key === undefined) throw new ExitError(exitCode.interrupted, "nothing was stored");
  return key.trim();
}

function openInBrowser(address: string): void {
  const command = process.platform === "darwin" ? "open" : "xdg-open";
  spawn(command, [address], { stdio: "ignore", detached: true })
    .on("error", () => {})
    .unref();
}

/** One thing that was looked at. */
interface Finding {
  readonly ok: boolean;
  readonly what: string;
  /** What to do about it. */
  readonly mend?: string;
}

const good = (what: string): Finding => ({ ok: true, what });
const bad = (what: string, mend: string): Finding => ({ ok: false, what, mend });

const oneTry = { retries: 0, timeoutMs: 10_000 } as const;

/** Checks everything between this command and a running job. Stops when further checks cannot succeed. */
async function* diagnose(airlock: Airlock, { url, key }: Settings): AsyncGenerator<Finding> {
  const health = yield* reach(airlock, url);
  const own = health && (yield* checkKey(airlock, key));
  if (!health || !own) return;
  const lacks = (...scopes: OwnKey["scopes"]) => scopes.some((one) => !own.scopes.includes(one));
  const isServed = yield* lacks("read", "monitor")
    ? checkEngines(health)
    : checkAgents(airlock, health);
  const { pending, max_queue_size: most } = health.queue_stats;
  if (pending >= most) {
    const mend = "add agents or slots, raise max_queue_size, or cancel jobs (airlock ps -s queued)";
    yield bad(`the queue is full: ${pending} of ${most}`, mend);
  }
  if (lacks("run")) yield good("no job is tried: the key lacks the scope run");
  else if (isServed) yield await tryJob(airlock);
}

async function* reach(airlock: Airlock, url: string): AsyncGenerator<Finding, Health | undefined> {
  try {
    const health = await airlock.api.getHealth(oneTry);
    yield good(`Airlock ${health.version} answers at ${url}`);
    return health;
  } catch (error) {
    yield error instanceof ConnectionError
      ? bad(
          error.message,
          "start it (npm start), or give its address: --url, AIRLOCK_URL, airlock login; check what is between, such as a proxy",
        )
      : bad(
          `${url} answers, but not as Airlock: ${textOf(error)}`,
          "check the address; a proxy before the service may answer in its place",
        );
    return undefined;
  }
}

async function* checkKey(
  airlock: Airlock,
  key: string | undefined,
): AsyncGenerator<Finding, OwnKey | undefined> {
  try {
    const own = await airlock.api.getOwnKey(oneTry);
    yield good(await wordsOfKey(airlock, key, own));
    return own;
  } catch (error) {
    const refusal =
      key === undefined ? "the service needs an API key" : "the service does not know the key";
    yield error instanceof UnauthorizedError
      ? bad(
          refusal,
          "airlock login, --key or AIRLOCK_KEY, with a key that an operator made, or one of api_keys in the service's configuration",
        )
      : bad(
          `the key cannot be checked: ${textOf(error)}`,
          "look at the service's log for the correlation id",
        );
    return undefined;
  }
}

/** Whose a key is, and what it may do. */
const describeKey = ({ name, tenant, scopes }: OwnKey): string =>
  `${name} of tenant ${tenant}, for ${scopes.join(", ")}`;

/** A service that asks for no key takes every key. */
async function wordsOfKey(airlock: Airlock, key: string | undefined, own: OwnKey): Promise<string> {
  if (key === undefined) return "no key is needed";
  const without = connect({ url: airlock.url });
  const isNeeded = await without.api.getOwnKey(oneTry).then(
    () => false,
    (error: unknown) => error instanceof UnauthorizedError,
  );
  return isNeeded
    ? `the key is accepted: ${describeKey(own)}`
    : "no key is needed: the one that was given is not checked";
}

const noAgent = bad(
  "no agent is connected, so no job can run",
  "on a machine with Docker or Podman: npm run agent (airlock agents invite gives its code)",
);

/** @returns Whether an agent can run jobs. */
async function* checkAgents(
  airlock: Airlock,
  { version }: Health,
): AsyncGenerator<Finding, boolean> {
  const { agents } = await airlock.api.getPoolStats(oneTry);
  for (const agent of agents) yield* checkAgent(agent, version);
  if (agents.length === 0) yield noAgent;
  return agents.some(isWell);
}

/** For a key that may not see agents. */
async function* checkEngines({
  docker_available: isServed,
}: Health): AsyncGenerator<Finding, boolean> {
  const hint = "a key with the scopes read and monitor shows which ones";
  yield isServed ? good(`agents are connected; ${hint}`) : noAgent;
  return isServed;
}

const isWell = ({ state }: PoolAgent): boolean => state === "idle" || state === "working";

function* checkAgent(agent: PoolAgent, version: string): Generator<Finding> {
  const { name, state, problem, running, slots } = agent;
  yield isWell(agent)
    ? good(`agent ${name}: ${state}, ${running} of ${slots} slots in use`)
    : bad(`agent ${name}: ${problem ?? state}`, mendAgent(agent));
  if (agent.version !== version) {
    const what = `agent ${name} has version ${agent.version}, the service ${version}`;
    yield bad(what, "update and restart the older one");
  }
  const { fork_problem: noForks } = agent.engine;
  if (isWell(agent) && typeof noForks === "string") {
    yield good(`agent ${name} starts a container for each job: ${noForks}`);
  }
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

/** Runs a job, which shows what no other check finds: a full disk, a missing image. */
async function tryJob(airlock: Airlock): Promise<Finding> {
  try {
    const executeRequest = { code: "print('ok')", timeout: 20 };
    const result = await airlock.api.execute({ executeRequest }, { retries: 0, timeoutMs: 60_000 });
    if (result.success) return good("a job runs");
    const { type = "failed", message = "" } = result.error ?? {};
    return bad(`a job fails: ${type}: ${message}`, "look at the agent's log");
  } catch (error) {
    const text = textOf(error);
    const mend = /disk|full|max_database_bytes|space/i.test(text)
      ? "free space on the service's disk (df -h), or raise max_database_bytes"
      : "look at the service's log for the correlation id";
    return bad(`a job is refused: ${text}`, mend);
  }
}

function textOf(error: unknown): string {
  if (error instanceof ProblemError) return error.problem?.detail ?? error.message;
  return error instanceof Error ? error.message : String(error);
}

/** Commands about agents and the hosts that they run on. */
export function addAgents(program: Command): void {
  const about = "agents, and the hosts that may run them";
  const agents = addCommand(program, "agents", about).command;
  addCommand(agents, "list|ls", "list agents and how they are").does(async (tool) => {
    const { agents: found } = await tool.airlock.api.getPoolStats();
    showList(tool, found, "no agents: airlock agents invite adds one", {
      ID: ({ id }) => id,
      STATE: ({ state }) => state,
      JOBS: ({ running, slots }) => `${running}/${slots}`,
      SEEN: ({ last_seen }) => age(last_seen),
      NAME: ({ name }) => name,
    });
    for (const { name, problem } of found) {
      if (problem && !tool.terminal.json) tool.terminal.note(`${name}: ${problem}`);
    }
  });
  addCommand(agents, "hosts", "list hosts that have joined").does(async (tool) => {
    const { hosts } = await tool.airlock.api.listHosts();
    showList(tool, hosts, "no host has joined", {
      ID: ({ id }) => id,
      STATE: ({ revoked_at }) => (revoked_at ? "revoked" : "joined"),
      USED: ({ last_used_at }) => (last_used_at ? age(last_used_at) : "never"),
      NAME: ({ name }) => name,
    });
  });
  addCommand(agents, "invite", "make a code with which a host can join")
    .option("--name <name>", "name of the host")
    .option("--expires <duration>", "how long the code is valid", {
      default: "1h",
      read: parseSeconds,
    })
    .does(async (tool, { name, expires: expires_in_s }) => {
      const invitationRequest = { ...given({ name }), expires_in_s };
      const invitation = await tool.airlock.api.inviteHost({ invitationRequest });
      show(tool, invitation, invitation.code);
      if (tool.terminal.json) return;
      tool.terminal.note(
        `\nIt joins one host, until ${invitation.expires_at}. On that host:\n  npm run agent -- join --url ${tool.settings.url} --code ${invitation.code}`,
      );
    });
  addCommand(agents, "revoke", "void the token of a host")
    .argument("<host>", "its id or name, from airlock agents hosts")
    .does(async (tool, word) => {
      const host = await tool.airlock.api.revokeHost({ id: await findHost(tool, word) });
      const line = `${host.name} is revoked; what it runs goes to others when its leases end`;
      show(tool, host, line);
    });
  addCommand(agents, "rotate", "give a host a new token; its jobs go on")
    .argument("<host>", "its id or name, from airlock agents hosts")
    .does(rotate);
  for (const [verb, summary, done] of [
    ["drain", "give an agent no new work", "finishes its jobs and takes no new ones"],
    ["resume", "give a drained agent work again", "takes work again"],
  ] as const) {
    addCommand(agents, verb, summary)
      .argument("<agent>", "its id or name, from airlock agents list")
      .does(async (tool, word) => {
        const { api } = tool.airlock;
        const { agents: found } = await api.getPoolStats();
        const { id } = findOne(found, word, "agent", "airlock agents list");
        const agent = await (verb === "drain" ? api.drainAgent : api.resumeAgent)({ id });
        show(tool, agent, `${agent.name} ${done}`);
      });
  }
}

/** The id of a host whose token is valid, by its id or name. */
async function findHost({ airlock }: Tool, word: string): Promise<string> {
  const { hosts } = await airlock.api.listHosts();
  const open = hosts.filter(({ revoked_at }) => !revoked_at);
  return findOne(open, word, "host", "airlock agents hosts").id;
}

/** How long to wait for the host. A running agent answers within seconds. */
const rotationMs = 30_000;

/** Asks a host for a new token, and waits until it has one. */
async function rotate(tool: Tool, word: string): Promise<number> {
  const { airlock, terminal } = tool;
  const id = await findHost(tool, word);
  let host = await airlock.api.rotateHost({ id });
  const end = Date.now() + rotationMs;
  while (host.rotation_asked_at !== undefined && Date.now() < end) {
    await sleep(500);
    const { hosts: now } = await airlock.api.listHosts();
    host = now.find((one) => one.id === id) ?? host;
  }
  const isDone = host.rotation_asked_at === undefined;
  if (isDone || terminal.json) {
    show(tool, host, `${host.name} has a new token; the old one is void`);
  } else {
    terminal.note(
      `airlock: ${host.name} still has its old token, and replaces it when an agent on it polls.\nTo replace it at once, run on that host, as the agent's user: npm run agent -- rotate`,
    );
  }
  return isDone ? 0 : exitCode.failed;
}
