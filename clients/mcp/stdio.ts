import packageJson from "../../package.json" with { type: "json" };
import { serveMcp } from "./serve-stdio.ts";

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

serveMcp({ url, key, version: packageJson.version });
