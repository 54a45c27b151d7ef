import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { ConnectionError } from "../typescript/src/errors.ts";
import { transport } from "../typescript/src/transport.ts";
import { verbs } from "../typescript/src/verbs.ts";
import { mcpServer } from "./server.ts";
import { parseAnswer } from "./tools.ts";

/** The Airlock that the tools act through. */
export interface Service {
  url: string;
  key?: string | undefined;
  tenant?: string | undefined;
  version: string;
}

/** Serves the Model Context Protocol on stdin and stdout, for programs that start their servers. */
export function serveMcp({ url, key, tenant, version }: Service): void {
  const fetchIt: typeof fetch = async (path, init) => {
    try {
      return await fetch(path, init);
    } catch (error) {
      if (init?.signal?.aborted) throw error;
      const message = `Airlock does not answer at ${url}: see AIRLOCK_URL, or run airlock doctor.`;
      throw new ConnectionError(message, { cause: error });
    }
  };
  // Clients give up a call after 60 s.
  const airlock = verbs(
    transport({
      url,
      key,
      tenant,
      retries: 2,
      timeoutMs: 15_000,
      fetch: fetchIt,
      parse: parseAnswer,
    }),
  );
  serveStdio(() =>
    mcpServer({
      airlock,
      version,
      metadataOf: () => ({}),
      abortCancels: () => true,
      // The process ends when nothing is left to do.
      keep: (work) => void work.catch(() => {}),
    }),
  );
}
