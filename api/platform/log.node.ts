import { configure, getLogger, type Logger } from "@logtape/logtape";
import { formatLogLine } from "../../shared/log-line.ts";
import type { Config } from "../../shared/config.ts";

/** Log lines on standard error, in the contract's shape. */
export async function startLog(level: Config["log_level"]): Promise<Logger> {
  await configure({
    sinks: { stderr: (record) => void process.stderr.write(formatLogLine(record)) },
    loggers: [
      { category: "airlock", lowestLevel: level, sinks: ["stderr"] },
      { category: ["logtape", "meta"], lowestLevel: "warning", sinks: ["stderr"] },
    ],
  });
  return getLogger(["airlock", "api"]);
}
