import { setTimeout as sleep } from "node:timers/promises";
import type { Config } from "../../shared/config/config.ts";
import { jsonRequest, OperatorError, say } from "../operate/command.ts";

type Timeouts = {
  /** The API answers before: it knows what the job waits for. */
  answerMs: number;
  /** How long a refused job is sent again while the agent's engine does not work. */
  engineMs: number;
  pauseMs: number;
};

const TIMEOUTS: Timeouts = { answerMs: 300_000, engineMs: 90_000, pauseMs: 1000 };

/** A default job type with packages is built for the first job, which waits for that. */
export function timeoutsFor({ job_types, build_timeout }: Config): Timeouts {
  const buildMs = Object.hasOwn(job_types, "default") ? build_timeout * 1000 : 0;
  return { ...TIMEOUTS, answerMs: TIMEOUTS.answerMs + buildMs };
}

const CODE = `import json, platform
numbers = json.load(open("/input/data.json"))["numbers"]
json.dump({"sum": sum(numbers)}, open("/output/result.json", "w"))
print("Python", platform.python_version())
`;

type Answer = { success: boolean; stdout: string; output: unknown; error: unknown };

/**
 * Runs one real job through the API and prints its answer. Throws OperatorError if the answer is
 * wrong.
 */
export async function selfCheck(
  url: string,
  config: Config,
  timeouts = timeoutsFor(config),
): Promise<void> {
  if (config.api_auth_enabled && keyOf(config) === undefined) {
    say(
      "no self-check: api_keys has no key to send it with, and only hashes of managed keys are stored",
    );
    return;
  }
  let began = performance.now();
  let answer = await runJobOnWorkingEngine(url, config, timeouts);
  // The default job type has no image: production_mode requires one, or its image was removed.
  if (answer.status === 400 || answer.status === 503) {
    await buildDefault(url, config);
    began = performance.now();
    answer = await runJob(url, config, timeouts.answerMs);
  }
  const { status, text } = answer;
  if (status !== 200) throw new OperatorError(`the self-check got HTTP ${status}: ${text}`);

  const { success, stdout, output, error } = JSON.parse(text) as Answer;
  const right = success && JSON.stringify(output) === '{"sum":42}';
  if (!right) throw new OperatorError(`the self-check failed: ${JSON.stringify(error ?? output)}`);
  const ms = Math.round(performance.now() - began);
  say(`self-check: ${stdout.trim()} in a container answered ${JSON.stringify(output)} in ${ms} ms`);
}

/**
 * Sends the job again while it is refused because of the engine: a slow engine is not known to work until its first probe
 * has ended, and its breaker may open meanwhile. Only an engine that worked before and after a refusal was not its reason.
 */
async function runJobOnWorkingEngine(
  url: string,
  config: Config,
  { answerMs, engineMs, pauseMs }: Timeouts,
): Promise<Reply> {
  const deadline = performance.now() + engineMs;
  for (let worked = false; ; worked = true) {
    const answer = await runJob(url, config, answerMs);
    if (answer.status !== 503 || (worked && (await isHealthy(url)))) return answer;
    for (; !(await isHealthy(url)); await sleep(pauseMs)) {
      if (performance.now() < deadline) continue;
      throw new OperatorError(
        `the agent's container engine did not work within ${engineMs / 1000} s; the first job was answered HTTP 503: ${answer.text}\nThe messages above say why; start or mend the engine, then run npm start again.`,
      );
    }
  }
}

async function isHealthy(url: string): Promise<boolean> {
  const response = await fetch(`${url}/health`);
  return ((await response.json()) as { status: string }).status === "healthy";
}

type Reply = { status: number; text: string };

async function runJob(url: string, config: Config, timeoutMs: number): Promise<Reply> {
  const body = { code: CODE, input_data: { numbers: [20, 22] } };
  return post(`${url}/execute`, config, timeoutMs, body);
}

async function buildDefault(url: string, config: Config): Promise<void> {
  say("building the image of the default job type");
  const path = `${url}/job-types/default/build`;
  const { status, text } = await post(path, config, config.build_timeout * 1000);
  if (status !== 200) throw new OperatorError(`the build got HTTP ${status}: ${text}`);
}

async function post(url: string, config: Config, timeoutMs: number, body?: object): Promise<Reply> {
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const response = await fetch(url, { ...jsonRequest("POST", body, keyHeader(config)), signal });
    return { status: response.status, text: await response.text() };
  } catch (cause) {
    if (!signal.aborted) throw cause;
    throw new OperatorError(
      `the self-check got no answer within ${timeoutMs / 1000} s.\nThe messages above say what it waits for; if this machine was only slow, run npm start again.`,
      { cause },
    );
  }
}

/** The header that a request needs if API keys are required. */
function keyHeader(config: Config): Record<string, string> {
  const key = keyOf(config);
  return config.api_auth_enabled && key ? { [config.api_auth_header]: key } : {};
}

const keyOf = ({ api_keys, operator_keys }: Config): string | undefined =>
  [...api_keys, ...operator_keys][0];

/** A first command to try, with this address and key header. */
export function curlLine(url: string, config: Config): string {
  const key = config.api_auth_enabled ? ` -H '${config.api_auth_header}: <your key>'` : "";
  return `curl -s ${url}/execute${key} -H 'Content-Type: application/json' -d '{"code": "print(6 * 7)"}'`;
}
