import type { Hono, NotFoundHandler } from "hono";
import { TrieRouter } from "hono/router/trie-router";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./context.ts";

/** Answers requests that match no route: 405 with Allow if the path is an endpoint's, else 404. */
export function refuseUnrouted({ routes }: Pick<Hono<AppEnv>, "routes">): NotFoundHandler<AppEnv> {
  const methods = new TrieRouter<string>();
  for (const { method, path } of routes) if (method !== "ALL") methods.add("ALL", path, method);
  return (c) => {
    const { method, path } = c.req;
    const allowed = new Set(methods.match("ALL", path)[0].map(([name]) => name));
    if (allowed.has("GET")) allowed.add("HEAD");
    if (allowed.size === 0) {
      const detail = `${method} ${path} is not an endpoint; see /openapi.json.`;
      throw new AppError("not_found", detail);
    }
    const Allow = [...allowed].sort().join(", ");
    const detail = `${path} does not take the method ${method}, but ${Allow}.`;
    throw new AppError("method_not_allowed", detail, {}, { Allow });
  };
}
