import { type HostSearch, engineHosts } from "./engine-hosts.ts";
import { type PingResult, pingEngine } from "./ping-engine.ts";

export type EngineSearch = HostSearch & {
  /** The first engine that answered. */
  found?: string;
  pings: PingResult[];
};

/**
 * Looks for an engine that answers: at `dockerHost` or DOCKER_HOST if set, else on the usual
 * sockets.
 */
export async function findEngine(
  dockerHost: string | undefined,
  env: NodeJS.ProcessEnv = process.env,
): Promise<EngineSearch> {
  const search = engineHosts(dockerHost, env);
  const pings = await Promise.all(search.hosts.map((host) => pingEngine(host)));
  const found = pings.find((ping) => ping.state === "answers")?.host;
  return { ...search, pings, ...(found ? { found } : {}) };
}
