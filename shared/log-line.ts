/** The parts of a LogTape record that a line shows. */
export interface LogRecordLike {
  readonly timestamp: number;
  readonly level: string;
  readonly category: readonly string[];
  readonly message: readonly unknown[];
  readonly properties: Record<string, unknown>;
}

/**
 * One log line in the shape of docs/contract.md 8.2: timestamp, correlation id in
 * brackets, level, logger name, message, and the id of the W3C trace that the work belongs to, if any.
 * Control characters and line separators are escaped, so that no value can forge a second line.
 */
export function formatLogLine(record: LogRecordLike): string {
  const time = new Date(record.timestamp).toISOString();
  const id = record.properties["correlationId"] ?? "-";
  const line = `${time} [${show(id)}] ${record.level.toUpperCase()} ${record.category.join(".")} ${messageOf(record)}${traceOf(record)}`;
  return `${line.replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, escapeControl)}\n`;
}

function traceOf({ properties }: LogRecordLike): string {
  const traceparent = properties["traceparent"];
  return typeof traceparent === "string" ? `, trace ${traceparent.split("-")[1]}` : "";
}

/** Joins a record's message into one text: LogTape's JSON would put quotes around each value in it. */
export function withPlainMessage<R extends LogRecordLike>(record: R): R {
  return { ...record, message: [messageOf(record)] };
}

function messageOf({ message }: LogRecordLike): string {
  return message.map(show).join("");
}

function show(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Error) return describeError(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

/** An error's message with those of its causes, on one line. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // The message of a failed query contains its parameters, which may be code or input.
  if ("params" in error && error.cause !== undefined) return describeError(error.cause);
  const own = (error.message || error.name).trim();
  if (error.cause === undefined) return own;
  const cause = describeError(error.cause);
  return own.includes(cause) ? own : `${own}: ${cause}`;
}

function escapeControl(c: string): string {
  const hex = c.charCodeAt(0).toString(16);
  return hex.length > 2 ? `\\u${hex}` : `\\x${hex.padStart(2, "0")}`;
}
