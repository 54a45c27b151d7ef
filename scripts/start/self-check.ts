import type { Config } from "../../shared/config.ts";
import { OperatorError } from "../operator-error.ts";
import { say } from "../say.ts";

const TIMEOUT_MS = 120_000;

const CODE = `import json, platform
numbers = json.load(open("/input/data.json"))["numbers"]
json.dump({"sum": sum(numbers)}, open("/output/result.json", "w"))
print("Python", platform.python_version())
`;

type Answer = { success: boolean; stdout: string; output: unknown; error: unknown };

/** Runs one real job through the API and says what came back. Throws OperatorError if it is wrong. */
export async function selfCheck(url: string, config: Config): Promise<void> {
  const began = performance.now();
  const response = await fetch(`${url}/execute`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...keyHeader(config) },
    body: JSON.stringify({ code: CODE, input_data: { numbers: [20, 22] } }),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const text = await response.text();
  if (!response.ok) throw new OperatorError(`the self-check got HTTP ${response.status}: ${text}`);

  const { success, stdout, output, error } = JSON.parse(text) as Answer;
  const right = success && JSON.stringify(output) === '{"sum":42}';
  if (!right) throw new OperatorError(`the self-check failed: ${JSON.stringify(error ?? output)}`);
  const ms = Math.round(performance.now() - began);
  say(`self-check: ${stdout.trim()} in a container answered ${JSON.stringify(output)} in ${ms} ms`);
}

/** The header that a request needs where API keys are required. */
function keyHeader(config: Config): Record<string, string> {
  const [key] = config.api_keys;
  return config.api_auth_enabled && key ? { [config.api_auth_header]: key } : {};
}

/** A command to try first, for this address and these keys. */
export function curlLine(url: string, config: Config): string {
  const key = config.api_auth_enabled ? ` -H '${config.api_auth_header}: <your key>'` : "";
  return `curl -s ${url}/execute${key} -H 'Content-Type: application/json' -d '{"code": "print(6 * 7)"}'`;
}
