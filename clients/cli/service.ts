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
import { age, colorOf, parseDuration } from "./terminal.ts";
import { addCommand, does, findOne, showList, type Tool } from "./tool.ts";

/** Commands about the service itself. */
export function addService(program: Command): void {
  addCommand(program, "login", "store the address and the key for later commands")
    .argument("[url]", "address of the service")
    .action(
      does(async ({ settings, terminal, globals }: Tool, url: string | undefined) => {
        const address = checkUrl(url ?? settings.url);
        // A stored key may be the one to replace.
        const key = givenKey(globals, process.env) ?? (await askForKey());
        const stored = { url: address, ...(key !== "" && { key }) };
        const own = await connect(stored).api.getOwnKey({ retries: 0 });
        const whose = key === "" ? "" : `: ${describeKey(own)}`;
        terminal.note(`stored in ${writeSettings(stored, process.env)}${whose}`);
      }),
    );

  addCommand(program, "health", "show how the service is").action(
    does(async ({ airlock, terminal }: Tool) => {
      const health = await airlock.api.getHealth();
      const { queue_stats: queue } = health;
      if (terminal.json) terminal.document(health);
      else {
        terminal.line(
          `${colorOf(health.status, terminal.style)}  Airlock ${health.version} at ${airlock.url}`,
        );
        terminal.line(`queue   ${queue.pending} waiting of at most ${queue.max_queue_size}`);
        terminal.line(`running ${queue.running} of at most ${queue.max_workers}`);
        const engine = health.docker_available ? "available" : "not available";
        terminal.line(`engine  ${engine}${health.forks_available ? "; jobs are forked" : ""}`);
      }
      return health.status === "healthy" ? 0 : exitCode.failed;
    }),
  );

  addCommand(program, "doctor", "say what is wrong and how to mend it").action(
    does(async ({ terminal, settings }: Tool) => {
      // Without retries, which would print notes.
      const findings = await diagnose(connect(settings), settings);
      if (terminal.json) terminal.document(findings);
      for (const { ok, what, mend } of terminal.json ? [] : findings) {
        terminal.line(
          `${ok ? terminal.style("green", "ok") : terminal.style("red", "!!")}  ${what}`,
        );
        if (mend !== undefined) terminal.line(`    ${mend}`);
      }
      return findings.every(({ ok }) => ok) ? 0 : exitCode.failed;
    }),
  );

  addCommand(program, "open", "open the console")
    .argument("[job]", "id of a job to show, or the end of the id")
    .action(
      does(async ({ terminal, settings }: Tool, job: string | undefined) => {
        const { url } = settings;
        const address = job === undefined ? `${url}/console` : consoleAddress(url, job);
        terminal.line(address);
        if (process.stdout.isTTY) openInBrowser(address);
      }),
    );

  addCommand(
    program,
    "mcp",
    "serve the Model Context Protocol on standard input and output",
  ).action(
    does(async ({ settings }: Tool) => {
      // It is most of the program: no other command loads it.
      const { serveMcp } = await import("../mcp/stdio.ts");
      serveMcp({ ...settings, version: program.version() ?? "" });
      // It ends with its input.
      await new Promise((resolve) => process.stdin.once("close", resolve));
    }),
  );

  addCommand(program, "api", "send any request, and print the answer")
    .argument("<method>", "GET, POST, PUT, DELETE …")
    .argument("<path>", "such as /executions?limit=1")
    .option("-d, --data <json>", "the body; @file or - reads it")
    .action(
      does(
        async (
          { airlock, terminal }: Tool,
          method: string,
          path: string,
          options: { data?: string },
        ) => {
          if (!path.startsWith("/")) throw new UsageError(`the path begins with a slash: /${path}`);
          const body = await readBody(options.data);
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
        },
      ),
    );
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

const oneTry = { retries: 0, timeoutMs: 10_000 } as const;

/** Checks everything between this command and a running job. Stops when further checks cannot succeed. */
async function diagnose(airlock: Airlock, { url, key }: Settings): Promise<Finding[]> {
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
    const health = await airlock.api.getHealth(oneTry);
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
    const own = await airlock.api.getOwnKey(oneTry);
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
  const { agents } = await airlock.api.getPoolStats(oneTry);
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

/** Commands about agents and the hosts that they run on. */
export function addAgents(program: Command): void {
  const agents = addCommand(program, "agents", "agents, and the hosts that may run them");
  addCommand(agents, "list", "list agents and how they are")
    .alias("ls")
    .action(
      does(async (tool: Tool) => {
        const { airlock, terminal } = tool;
        const { agents: found } = await airlock.api.getPoolStats();
        showList(tool, found, "no agents: airlock agents invite adds one", {
          ID: ({ id }) => id,
          STATE: ({ state }) => state,
          JOBS: ({ running, slots }) => `${running}/${slots}`,
          SEEN: ({ last_seen }) => age(last_seen),
          NAME: ({ name }) => name,
        });
        for (const { name, problem } of found) {
          if (problem && !terminal.json) terminal.note(`${name}: ${problem}`);
        }
      }),
    );
  addCommand(agents, "hosts", "list hosts that have joined").action(
    does(async (tool: Tool) => {
      const { hosts } = await tool.airlock.api.listHosts();
      showList(tool, hosts, "no host has joined", {
        ID: ({ id }) => id,
        STATE: ({ revoked_at }) => (revoked_at ? "revoked" : "joined"),
        USED: ({ last_used_at }) => (last_used_at ? age(last_used_at) : "never"),
        NAME: ({ name }) => name,
      });
    }),
  );
  addCommand(agents, "invite", "make a code with which a host can join")
    .option("--name <name>", "name of the host")
    .option("--expires <duration>", "how long the code is valid", "1h")
    .action(
      does(
        async (
          { airlock, terminal, settings }: Tool,
          options: { name?: string; expires: string },
        ) => {
          const { name, expires } = options;
          const expires_in_s = Math.round(parseDuration(expires, "--expires") / 1000);
          const invitationRequest = { ...(name !== undefined && { name }), expires_in_s };
          const invitation = await airlock.api.inviteHost({ invitationRequest });
          if (terminal.json) return terminal.document(invitation);
          terminal.line(invitation.code);
          terminal.note(
            `\nIt joins one host, until ${invitation.expires_at}. On that host:\n  npm run agent -- join --url ${settings.url} --code ${invitation.code}`,
          );
        },
      ),
    );
  addCommand(agents, "revoke", "void the token of a host")
    .argument("<host>", "its id or name, from airlock agents hosts")
    .action(
      does(async ({ airlock, terminal }: Tool, given: string) => {
        const { hosts } = await airlock.api.listHosts();
        const open = hosts.filter(({ revoked_at }) => !revoked_at);
        const { id } = findOne(open, given, "host", "airlock agents hosts");
        const host = await airlock.api.revokeHost({ id });
        if (terminal.json) terminal.document(host);
        else
          terminal.line(`${host.name} is revoked; what it runs goes to others when its leases end`);
      }),
    );
  addCommand(agents, "rotate", "give a host a new token; its jobs go on")
    .argument("<host>", "its id or name, from airlock agents hosts")
    .action(does(rotate));
  for (const [verb, summary, done] of [
    ["drain", "give an agent no new work", "finishes its jobs and takes no new ones"],
    ["resume", "give a drained agent work again", "takes work again"],
  ] as const) {
    addCommand(agents, verb, summary)
      .argument("<agent>", "its id or name, from airlock agents list")
      .action(
        does(async ({ airlock, terminal }: Tool, given: string) => {
          const { agents: found } = await airlock.api.getPoolStats();
          const { id } = findOne(found, given, "agent", "airlock agents list");
          const call = verb === "drain" ? airlock.api.drainAgent : airlock.api.resumeAgent;
          const agent = await call({ id });
          if (terminal.json) terminal.document(agent);
          else terminal.line(`${agent.name} ${done}`);
        }),
      );
  }
}

/** How long to wait for the host. A running agent answers within seconds. */
const rotationMs = 30_000;

/** Asks a host for a new token, and waits until it has one. */
async function rotate({ airlock, terminal }: Tool, given: string): Promise<number> {
  const { hosts } = await airlock.api.listHosts();
  const open = hosts.filter(({ revoked_at }) => !revoked_at);
  let host = await airlock.api.rotateHost({
    id: findOne(open, given, "host", "airlock agents hosts").id,
  });
  const { id, name } = host;
  const end = Date.now() + rotationMs;
  while (host.rotation_asked_at !== undefined && Date.now() < end) {
    await sleep(500);
    const { hosts: now } = await airlock.api.listHosts();
    host = now.find((one) => one.id === id) ?? host;
  }
  const isDone = host.rotation_asked_at === undefined;
  if (terminal.json) terminal.document(host);
  else if (isDone) terminal.line(`${name} has a new token; the old one is void`);
  else {
    terminal.note(
      `airlock: ${name} still has its old token, and replaces it when an agent on it polls.\nTo replace it at once, run on that host, as the agent's user: npm run agent -- rotate`,
    );
  }
  return isDone ? 0 : exitCode.failed;
}
