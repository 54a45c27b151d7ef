import { serveStdio } from "@modelcontextprotocol/server/stdio";
import type { Api } from "./api.ts";
import { mcpServer } from "./server.ts";

/** The Airlock that the tools act through. */
export interface Service {
  url: string;
  key?: string | undefined;
  version: string;
}

/** Serves the Model Context Protocol on stdin and stdout, for programs that start their servers. */
export function serveMcp({ url, key, version }: Service): void {
  const api: Api = async (path, init = {}) => {
    const headers = new Headers(init.headers);
    if (key !== undefined) headers.set("Authorization", `Bearer ${key}`);
    try {
      return await fetch(new URL(path.slice(1), `${url.replace(/\/$/, "")}/`), {
        ...init,
        headers,
      });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new Error(
        `Airlock does not answer at ${url}: see AIRLOCK_URL, or run airlock doctor.`,
        { cause: error },
      );
    }
  };
  serveStdio(() =>
    mcpServer({
      api,
      version,
      metadataOf: () => ({}),
      abortCancels: () => true,
      // The process ends when nothing is left to do.
      keep: (work) => void work.catch(() => {}),
    }),
  );
}
