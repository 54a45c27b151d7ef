import { serveStdio } from "@modelcontextprotocol/server/stdio";
import packageJson from "../../package.json" with { type: "json" };
import type { Api } from "./api.ts";
import { mcpServer } from "./server.ts";

const usage = `Usage: npm run mcp

Serves the Model Context Protocol on stdin and stdout, for programs that start their servers. It acts
through a running Airlock:
  AIRLOCK_URL   its address; default: http://127.0.0.1:8080
  AIRLOCK_KEY   an API key, if it asks for one
`;

const [argument] = process.argv.slice(2);
if (argument !== undefined) {
  const isHelp = argument === "--help" || argument === "-h";
  (isHelp ? process.stdout : process.stderr).write(usage);
  process.exit(isHelp ? 0 : 2);
}
const url = process.env["AIRLOCK_URL"] ?? "http://127.0.0.1:8080";
const key = process.env["AIRLOCK_KEY"];

const api: Api = async (path, init = {}) => {
  const headers = new Headers(init.headers);
  if (key !== undefined) headers.set("Authorization", `Bearer ${key}`);
  try {
    return await fetch(new URL(path.slice(1), `${url.replace(/\/$/, "")}/`), { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Error(`Airlock does not answer at ${url} (AIRLOCK_URL).`, { cause: error });
  }
};

serveStdio(() =>
  mcpServer({
    api,
    version: packageJson.version,
    metadataOf: () => ({}),
    abortCancels: () => true,
    // The process ends when nothing is left to do.
    keep: (work) => void work.catch(() => {}),
  }),
);
