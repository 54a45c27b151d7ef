import {
  configure,
  getJsonLinesFormatter,
  getLogger,
  type Logger,
  type LogRecord,
} from "@logtape/logtape";
import { formatLogLine, withPlainMessage } from "../shared/log-line.ts";
import type { AgentConfig } from "./config.ts";

const jsonLines = getJsonLinesFormatter({ properties: "flatten" });
const formatJson = (record: LogRecord): string => jsonLines(withPlainMessage(record));

/** Log lines on standard error: in the contract's shape, or one JSON object each. */
export async function startLog({ logLevel, logFormat }: AgentConfig): Promise<Logger> {
  const format = logFormat === "json" ? formatJson : formatLogLine;
  await configure({
    sinks: { stderr: (record) => void process.stderr.write(format(record)) },
    loggers: [
      { category: "airlock", lowestLevel: logLevel, sinks: ["stderr"] },
      { category: ["logtape", "meta"], lowestLevel: "warning", sinks: ["stderr"] },
    ],
  });
  return getLogger(["airlock", "agent"]);
}
