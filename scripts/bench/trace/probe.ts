// Loaded into the API and the agent by NODE_OPTIONS: writes down when what happened, in
// `<BENCH_TRACE>/<api or agent>`, as one JSON array of milliseconds and event per line.
import { subscribe } from "node:diagnostics_channel";
import { openSync, writeSync } from "node:fs";

const folder = process.env["BENCH_TRACE"];
const entry = process.argv[1] ?? "";
const who = ["api/node.ts", "agent/main.ts"].find((name) => entry.endsWith(name))?.split("/")[0];

function last(path = ""): string {
  return path.split("/").at(-1) ?? "";
}

if (folder !== undefined && who !== undefined) {
  const file = openSync(`${folder}/${who}`, "a");
  const note = (event: string): void => {
    const atMs = Number(process.hrtime.bigint()) / 1e6;
    // At once: who hears of what followed finds it written.
    writeSync(file, `${JSON.stringify([atMs, `${who} ${event}`])}\n`);
  };

  type Server = { request: { url?: string } };
  type Client = { request: { path: string } };
  subscribe("http.server.request.start", (message) =>
    note(`receives ${last((message as Server).request.url)}`),
  );
  subscribe("undici:request:headers", (message) =>
    note(`hears of ${last((message as Client).request.path)}`),
  );
  subscribe("airlock:run", (step) => note(String(step)));
}
