import type { Config } from "../shared/config/config.ts";
import { readConfig } from "./command/config.ts";
import { OperatorError, runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";
import { buildConsole } from "./console/build-console.ts";
import { setUp, type SetUp } from "./setup/set-up.ts";
import { checkAddress, localUrl } from "./start/address.ts";
import { agentName, agentToken } from "./start/agent-token.ts";
import { type Child, startChild } from "./start/child.ts";
import { type AgentKeeper, keepAgent } from "./start/keep-agent.ts";
import { parseStartOptions, startHelp } from "./start/options.ts";
import { curlLine, selfCheck } from "./start/self-check.ts";
import { untilStopSignal } from "./start/stop-signals.ts";

const API_GRACE_MS = 10_000;
/**
 * What an agent may take to report and clean up, after its own grace for running jobs. A busy, emulated machine needs
 * more than 20 s; a second signal ends the wait.
 */
const AGENT_CLEANUP_MS = 60_000;

await runMain(async () => {
  const options = parseStartOptions(process.argv.slice(2));
  if (options.help) process.stdout.write(startHelp());
  else await serve({ ...process.env, ...options.env });
});

/** Sets up what is missing, runs the API and one agent, and stops both when told to. */
async function serve(env: NodeJS.ProcessEnv): Promise<void> {
  const config = readConfig(env);
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
      AIRLOCK_AGENT_NAME: config.agent_name ?? agentName(token),
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
