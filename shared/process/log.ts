import {
  configure,
  getJsonLinesFormatter,
  getLogger,
  type Logger,
  type LogRecord,
} from "@logtape/logtape";
import type { Config } from "../config/config.ts";
import { formatLogLine, withPlainMessage } from "../log-line.ts";

export type LogConfig = Pick<Config, "log_level" | "log_format">;

const jsonLines = getJsonLinesFormatter({ properties: "flatten" });
const formatJson = (record: LogRecord): string => jsonLines(withPlainMessage(record));

/** Passes each log line, line feed included, to `write`: in the contract's shape, or as a JSON object. */
export async function startLog(
  { log_level, log_format }: LogConfig,
  name: "api" | "agent",
  write: (line: string) => void,
): Promise<Logger> {
  const format = log_format === "json" ? formatJson : formatLogLine;
  await configure({
    reset: true,
    sinks: { lines: (record) => write(format(record)) },
    loggers: [
      { category: "airlock", lowestLevel: log_level, sinks: ["lines"] },
      { category: ["logtape", "meta"], lowestLevel: "warning", sinks: ["lines"] },
    ],
  });
  return getLogger(["airlock", name]);
}
