import { randomUUID } from "node:crypto";
import manifest from "../package.json" with { type: "json" };
import { ConfigError } from "../shared/config/config.ts";
import { describeError } from "../shared/log-line.ts";
import type { AgentIdentity } from "../shared/wire/leases.ts";
import { type AgentSignals, listenForStop, runAgent } from "./agent.ts";
import { ApiError } from "./client/http.ts";
import { joinApi, rotateToken } from "./client/join.ts";
import { type AgentConfig, configHelp, readAgentConfig } from "./config.ts";
import { createDeps } from "./deps.ts";
import { showAlive } from "./host/alive.ts";
import { systemClock } from "./waiting.ts";

const help = `Usage: npm run agent [-- <command>]

  join --url <address> --code <code> [--name <name>]
            exchanges a one-time code for this host's own token, kept in data_dir; "--code -" reads
            the code from standard input
  rotate    replaces that token, also while the agent runs

Runs jobs for an Airlock API on this host's container engine until SIGTERM or SIGINT: then running
jobs may finish within drain_grace_s; a second signal ends it at once.

Read from the environment, or as keys in lower case without AIRLOCK_ from airlock.toml:
${configHelp()}

Exit codes: 0 stopped, 1 wrong configuration, 2 token or code refused, 3 the API speaks another version of
the protocol, 70 internal error (starting the agent again may help), 130 stopped by a
second signal.
`;

const exitCodes = {
  stopped: 0,
  config: 1,
  unauthorized: 2,
  incompatible: 3,
  failed: 70,
  aborted: 130,
} as const;

async function main(): Promise<number> {
  if (process.argv.includes("--help") || process.argv.includes("-h")) {
    process.stdout.write(help);
    return exitCodes.stopped;
  }
  const signals = listenForStop(process, systemClock);
  const [command, ...rest] = process.argv.slice(2);
  if (command !== undefined) return obey(command, rest);
  const config = readAgentConfig(process.env);
  const agent = {
    id: randomUUID(),
    name: config.name,
    version: manifest.version,
    labels: config.labels,
    accepts: {
      job_types: config.policy.agent_job_types ?? null,
      builds: config.policy.agent_builds,
      tenant_builds: config.policy.agent_tenant_builds,
    },
  };
  using _life = await showAlive(agent.id);
  await serve(config, agent, signals);
  return signals.abort.aborted ? exitCodes.aborted : exitCodes.stopped;
}

async function obey(command: string, args: string[]): Promise<number> {
  const { env } = process;
  if (command === "join") process.stdout.write(`airlock: ${await joinApi(args, env)}\n`);
  else if (command === "rotate") process.stdout.write(`airlock: ${await rotateToken(env)}\n`);
  else throw new ConfigError(`unknown command ${command}; npm run agent -- --help shows how`);
  return exitCodes.stopped;
}

async function serve(config: AgentConfig, agent: AgentIdentity, signals: AgentSignals) {
  const deps = await createDeps(config, agent, signals.abort);
  // If the API may not have freed this agent's leases, its spool folder stays: the next agent to
  // start finds it and reports the crash.
  let holdsNothing = false;
  try {
    holdsNothing = await runAgent(deps, signals);
  } catch (error) {
    holdsNothing = error instanceof ApiError;
    throw error;
  } finally {
    await deps.sandboxes.close();
    await deps.client.close();
    if (holdsNothing) await deps.spool.remove();
  }
}

/** One line that tells the operator what to do, and the exit code. */
function explain(error: unknown): { readonly text: string; readonly exitCode: number } {
  if (error instanceof ConfigError) return { text: error.message, exitCode: exitCodes.config };
  if (error instanceof ApiError) {
    if (error.kind === "incompatible") {
      return { text: error.message, exitCode: exitCodes.incompatible };
    }
    if (error.kind !== "unauthorized") return { text: describeError(error), exitCode: 1 };
    if (process.argv[2] === "join")
      return { text: error.message, exitCode: exitCodes.unauthorized };
    const text = `${error.message.replace(/\.$/, "")}; AIRLOCK_AGENT_TOKEN must be one of the API's agent_tokens, or, if this host joined, it must join again`;
    return { text, exitCode: exitCodes.unauthorized };
  }
  return { text: describeError(error), exitCode: exitCodes.failed };
}

function fail(error: unknown): void {
  const { text, exitCode } = explain(error);
  process.stderr.write(`airlock agent: ${text}\n`);
  process.exit(exitCode);
}

process.once("uncaughtException", fail);
main().then((exitCode) => process.exit(exitCode), fail);
