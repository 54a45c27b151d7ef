import {
  configure,
  getJsonLinesFormatter,
  getLogger,
  type Logger,
  type LogRecord,
} from "@logtape/logtape";
import type { Config } from "../../shared/config.ts";
import { formatLogLine, withPlainMessage } from "../../shared/log-line.ts";

const jsonLines = getJsonLinesFormatter({ properties: "flatten" });
const formatJson = (record: LogRecord): string => jsonLines(withPlainMessage(record));

/** Log lines on standard error: in the contract's shape, or one JSON object each. */
export async function startLog({ log_level, log_format }: Config): Promise<Logger> {
  const format = log_format === "json" ? formatJson : formatLogLine;
  await configure({
    sinks: { stderr: (record) => void process.stderr.write(format(record)) },
    loggers: [
      { category: "airlock", lowestLevel: log_level, sinks: ["stderr"] },
      { category: ["logtape", "meta"], lowestLevel: "warning", sinks: ["stderr"] },
    ],
  });
  return getLogger(["airlock", "api"]);
}
