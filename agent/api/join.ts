import { createHash, randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { z } from "zod";
import { ConfigError } from "../../shared/config/config.ts";
import {
  JoinCode,
  JoinReply,
  type JoinRequest,
  type RotateRequest,
} from "../../shared/wire/agent/join.ts";
import { describeError } from "../../shared/log-line.ts";
import { readConfig } from "../../shared/process/config-file.node.ts";
import { apiAddress, connectApi } from "./connection.ts";
import {
  adoptCredentials,
  type Credentials,
  credentialsFile,
  proposeCredentials,
  readCredentials,
  removeCredentials,
  writeCredentials,
} from "./credentials.ts";
import { createHttp, type Http } from "./http.ts";
import { fixedToken } from "./token-source.ts";

const TIMEOUT_MS = 30_000;

/**
 * `join --url <address> --code <code>`: exchanges a one-time code for this host's own token. The
 * token is made and stored here before it is sent, so the command can be repeated if the API's
 * answer was lost. Returns a message for the operator.
 */
export async function joinApi(args: string[], env: NodeJS.ProcessEnv): Promise<string> {
  const options = joinOptions(args);
  const config = readConfig(env);
  const { data_dir: dataDir } = config;
  const url = options.url ?? config.api_url;
  if (url === undefined) throw new ConfigError("join needs --url, the API's address");
  const address = apiAddress(url, config);
  const known = readCredentials(dataDir);
  if (known) {
    throw new ConfigError(
      `this host has joined ${known.api_url} as ${known.name}; to join again, remove ${credentialsFile(dataDir)}`,
    );
  }
  const code = await readCode(options.code);
  const earlier = readCredentials(dataDir, "joining");
  const name = options.name ?? config.agent_name ?? hostname();
  const token = earlier?.token ?? newToken();
  writeCredentials(dataDir, { api_url: url, name, token }, "joining");

  const http = createHttp({ url, token: undefined, dispatcher: connectApi(address, env) });
  const request: JoinRequest = { code, token_sha256: hashOf(token), name };
  const { agent } = await post(http, "/join", request, JoinReply);
  writeCredentials(dataDir, { api_url: url, name: agent.name, token }, "joining");
  adoptCredentials(dataDir, "joining");
  return `joined ${url} as ${agent.name}; its token is in ${credentialsFile(dataDir)}, and npm run agent uses it`;
}

/**
 * `rotate`: gives a joined host a new token. The old token is valid until the new one is first
 * used, which is the last step here. A running agent switches to the new token by itself. Agents of
 * one host that do this at the same time give it the same one.
 */
export async function rotateToken(env: NodeJS.ProcessEnv): Promise<string> {
  const config = readConfig(env);
  const { data_dir: dataDir } = config;
  const known = readCredentials(dataDir);
  if (config.agent_token !== undefined || !known) {
    throw new ConfigError(
      "only a token that this host got by joining can be rotated; change a configured agent_token in the configuration",
    );
  }
  const url = config.api_url ?? known.api_url;
  const address = apiAddress(url, config);
  const { token } = proposeCredentials(dataDir, { ...known, token: newToken() }, "rotating");
  // Another process may have ended a rotation before.
  const old = readCredentials(dataDir) ?? known;

  const order: RotateRequest = { token_sha256: hashOf(token) };
  const present = async ({ token: presented }: Pick<Credentials, "token">): Promise<void> => {
    const dispatcher = connectApi(address, env);
    const http = createHttp({ url, token: fixedToken(presented), dispatcher });
    await post(http, "/rotate", order, z.object({}));
  };
  await present(old).catch((error: unknown) => {
    // Another process was faster, and the old token is void.
    if (readCredentials(dataDir)?.token !== token) throw error;
  });
  writeCredentials(dataDir, { ...old, token }, "joined");
  removeCredentials(dataDir, "rotating");
  await present({ token });
  return `${old.name} has a new token; the old one is void`;
}

async function post<T>(http: Http, path: string, body: object, reply: z.ZodType<T>): Promise<T> {
  try {
    return await http.send({
      method: "POST",
      path,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      reply,
      timeoutMs: TIMEOUT_MS,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } finally {
    await http.close();
  }
}

function joinOptions(args: string[]) {
  try {
    const type = "string";
    return parseArgs({ args, options: { url: { type }, code: { type }, name: { type } } }).values;
  } catch (error) {
    throw new ConfigError(`${describeError(error)}; npm run agent -- --help shows how`);
  }
}

async function readCode(given: string | undefined): Promise<string> {
  if (given === undefined) throw new ConfigError("join needs --code, or --code - to read it");
  const code = JoinCode.safeParse((given === "-" ? await text(process.stdin) : given).trim());
  if (code.success) return code.data;
  throw new ConfigError(`--code: ${code.error.issues[0]?.message}`);
}

const newToken = (): string => `ala_${randomBytes(32).toString("hex")}`;

const hashOf = (token: string): string => createHash("sha256").update(token).digest("hex");
