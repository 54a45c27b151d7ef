import { fork } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import type { Config } from "../../shared/config/config.ts";
import { OperatorError, readConfig, runMain, say } from "../operate/command.ts";
import { buildConsole } from "../setup/build-console.ts";
import { setUp, type SetUp } from "../setup/set-up.ts";
import {
  agentName,
  agentToken,
  checkAddress,
  localUrl,
  parseStartOptions,
  startHelp,
} from "./options.ts";
import { curlLine, selfCheck } from "./self-check.ts";

const API_GRACE_MS = 10_000;
/**
 * What an agent may take to report and clean up, after its own grace for running jobs. A busy, emulated machine needs
 * more than 20 s; a second signal ends the wait.
 */
const AGENT_CLEANUP_MS = 60_000;

const HURRY_MS = 3000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;
/** After an agent has run this long, the next wait is short again. */
const HEALTHY_MS = 60_000;
const SAME_PRESS_MS = 1000;

await runMain(async () => {
  const options = parseStartOptions(process.argv.slice(2), process.env);
  if (options.help) process.stdout.write(startHelp());
  else await serve(options.env, options.inContainer);
});

/** Sets up what is missing, runs the API and one agent, and stops both when told to. */
async function serve(env: NodeJS.ProcessEnv, inContainer: boolean): Promise<void> {
  const config = readConfig(env);
  if (inContainer && !config.api_auth_enabled) {
    say(
      "no key is asked for: whoever reaches the port of this container can run code. Publish it on 127.0.0.1 of the host only, or set api_auth_enabled and api_keys",
    );
  }
  const token = config.agent_token ?? agentToken(config.data_dir);
  await checkAddress(config.host, config.port);

  const tokens = JSON.stringify([...config.agent_tokens, token]);
  const api = startChild("API", "api/node.ts", { ...env, AIRLOCK_AGENT_TOKENS: tokens });
  let agent: AgentKeeper | undefined;
  try {
    const [listening, engine] = await Promise.all([api.ready, setUpAll(config)]);
    const url = localUrl(listening.url);
    const agentEnv = {
      ...env,
      AIRLOCK_API_URL: url,
      // To an address of this machine, so that the token crosses no network.
      AIRLOCK_ALLOW_PLAIN_HTTP: "true",
      AIRLOCK_AGENT_TOKEN: token,
      AIRLOCK_AGENT_NAME:
        config.agent_name ?? agentName(token, inContainer ? "container" : undefined),
      AIRLOCK_DOCKER_HOST: engine.dockerHost,
    };
    agent = keepAgent(() => startChild("agent", "agent/main.ts", agentEnv));
    const { hurry } = agent;
    const stopped = untilStopSignal(() => {
      hurry();
      api.hurry();
    });
    const until = Promise.race([stopped, failWhenItEnds(api)]);
    await Promise.race([until, announce(url, config, agent)]);
    await until;
    say("stopping: running jobs may finish first; Ctrl-C again stops at once");
    if (engine.stopCommand)
      say(`dockerd, started by this, stays; to end it: ${engine.stopCommand}`);
  } finally {
    await agent?.stop(config.drain_grace_s * 1000 + AGENT_CLEANUP_MS);
    await api.stop((config.stop_delay_s + config.drain_grace_s) * 1000 + API_GRACE_MS);
  }
}

/** One after the other: the build blocks the event loop, so that an engine would seem not to answer. */
async function setUpAll(config: Config): Promise<SetUp> {
  const engine = await setUp(config);
  await buildConsole();
  return engine;
}

async function announce(url: string, config: Config, agent: AgentKeeper): Promise<void> {
  await agent.ready;
  await selfCheck(url, config);
  const seconds = (performance.now() / 1000).toFixed(1);
  say(`ready in ${seconds} s: ${url}/console, documented at ${url}/docs; Ctrl-C stops it. Try:`);
  process.stdout.write(`\n  ${curlLine(url, config)}\n\n`);
}

async function failWhenItEnds(api: Child): Promise<never> {
  const exitCode = await api.ended;
  throw new OperatorError("the API ended by itself, see above", { exitCode: exitCode || 1 });
}

/** The message of a child that is ready; `url` is the API's. */
type ReadyMessage = { type: "ready"; url: string };

type Child = {
  /** Rejects with OperatorError when the child ends first. */
  ready: Promise<ReadyMessage>;
  /** Resolves with the exit code when the child has ended; 1 for a signal. */
  ended: Promise<number>;
  /** Asks the child to stop and waits; kills it after `graceMs`. */
  stop(graceMs: number): Promise<void>;
  /** Sends the second signal, on which the child ends at once. */
  hurry(): void;
};

/**
 * Starts an entry point of Airlock, with this process's options of Node. If this process dies, the IPC channel closes
 * and the child ends by itself.
 */
function startChild(name: string, file: string, env: NodeJS.ProcessEnv): Child {
  const child = fork(file, [], {
    // A process group of its own: Ctrl-C then reaches only this process, which stops the children
    // in order.
    detached: true,
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    env,
  });

  const ended = new Promise<number>((resolve) => {
    child.once("exit", (code) => resolve(code ?? 1));
  });
  const ready = new Promise<ReadyMessage>((resolve, reject) => {
    child.on("message", (message: ReadyMessage) => {
      if (message.type === "ready") resolve(message);
    });
    child.once("error", reject);
    void ended.then((code) =>
      reject(
        new OperatorError(`the ${name} did not start (exit code ${code}), see above`, {
          exitCode: code || 1,
        }),
      ),
    );
  });
  // A child that is stopped before it is ready is no failure of this process.
  ready.catch(() => {});

  const endWithin = async (ms: number): Promise<void> => {
    const patience = new AbortController();
    const late = sleep(ms, "late", { signal: patience.signal }).catch(() => "ended");
    if ((await Promise.race([ended, late])) === "late") child.kill("SIGKILL");
    patience.abort();
    await ended;
  };

  return {
    ready,
    ended,
    stop: async (graceMs) => {
      child.kill("SIGTERM");
      await endWithin(graceMs);
    },
    hurry: () => {
      child.kill("SIGTERM");
      void endWithin(HURRY_MS);
    },
  };
}

type AgentKeeper = Pick<Child, "ready" | "stop" | "hurry">;

/**
 * Keeps one agent running: restarts it when it ends, after growing waits. The first start is not
 * repeated.
 */
function keepAgent(start: () => Child): AgentKeeper {
  const stopping = new AbortController();
  let agent = start();
  const { ready } = agent;

  const keep = async (): Promise<void> => {
    await ready;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      const since = performance.now();
      const code = await agent.ended;
      if (stopping.signal.aborted) return;
      if (performance.now() - since > HEALTHY_MS) waitMs = FIRST_WAIT_MS;
      say(`the agent ended (exit code ${code}), starting it again in ${waitMs / 1000} s`);
      await sleep(waitMs, undefined, { signal: stopping.signal });
      agent = start();
    }
  };
  keep().catch(() => {});

  return {
    ready,
    stop: async (graceMs) => {
      stopping.abort();
      await agent.stop(graceMs);
    },
    hurry: () => agent.hurry(),
  };
}

/**
 * Resolves at the first SIGINT, SIGTERM or SIGHUP; calls `onSecond` at the next. Under npm one
 * Ctrl-C arrives twice, from the terminal and from npm: both count as one.
 */
async function untilStopSignal(onSecond: () => void): Promise<void> {
  await new Promise<void>((resolve) => {
    let firstAt: number | undefined;
    const onSignal = (): void => {
      const now = performance.now();
      firstAt ??= now;
      if (now - firstAt > SAME_PRESS_MS) onSecond();
      else resolve();
    };
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, onSignal);
  });
}
