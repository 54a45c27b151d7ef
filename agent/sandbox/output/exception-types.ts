import type { ExecutionErrorType } from "../../../shared/wire/errors.ts";
import type { ExceptionReport } from "../report.ts";

/**
 * Error types by class. The first row with the exception's class or one of its bases applies, so
 * specific rows come first: a JSONDecodeError is a ValueError, a gaierror an OSError.
 */
const types: readonly (readonly [ExecutionErrorType, readonly string[]])[] = [
  ["json_error", ["json.decoder.JSONDecodeError"]],
  [
    "network_timeout",
    [
      "builtins.TimeoutError",
      "socket.timeout",
      "asyncio.exceptions.TimeoutError",
      "concurrent.futures._base.TimeoutError",
      "requests.exceptions.Timeout",
      "urllib3.exceptions.TimeoutError",
      "httpx.TimeoutException",
    ],
  ],
  [
    "network_error",
    [
      "builtins.ConnectionError",
      "socket.gaierror",
      "socket.herror",
      "urllib.error.URLError",
      "http.client.HTTPException",
      "ssl.SSLError",
      "requests.exceptions.ConnectionError",
      "urllib3.exceptions.HTTPError",
      "httpx.TransportError",
      "aiohttp.client_exceptions.ClientConnectionError",
    ],
  ],
  ["permission", ["builtins.PermissionError"]],
  ["file_not_found", ["builtins.FileNotFoundError"]],
  ["file_error", ["builtins.IsADirectoryError", "builtins.NotADirectoryError"]],
  ["os_error", ["builtins.OSError"]],
  ["syntax_error", ["builtins.SyntaxError"]],
  ["import_error", ["builtins.ImportError"]],
  ["encoding_error", ["builtins.UnicodeError"]],
  ["value_error", ["builtins.ValueError"]],
  ["type_error", ["builtins.TypeError"]],
  ["key_error", ["builtins.KeyError"]],
  ["index_error", ["builtins.IndexError"]],
  ["attribute_error", ["builtins.AttributeError"]],
  ["name_error", ["builtins.NameError"]],
  ["recursion_error", ["builtins.RecursionError"]],
  ["assertion_error", ["builtins.AssertionError"]],
  ["division_error", ["builtins.ZeroDivisionError"]],
  ["overflow_error", ["builtins.OverflowError"]],
];

const foldersInMemory =
  "If a write failed: /output, /tmp and /dev/shm are part of the job's memory, so raise memory_limit of its job type.";

/** An exception's error type, and the last line of its traceback as the message. */
export function errorTypeOfException({ mro, message }: ExceptionReport): {
  type: ExecutionErrorType;
  message: string;
} {
  const [type] = types.find(([, names]) => names.some((name) => mro.includes(name))) ?? [
    "runtime_error" as const,
  ];
  const name = (mro[0] ?? "").replace(/^(builtins|__main__)\./, "");
  // Source: errno(3), ENOSPC.
  const isFull = type === "os_error" && message.startsWith("[Errno 28]");
  const words = isFull ? `${message}. ${foldersInMemory}` : message;
  return { type, message: words === "" ? name : `${name}: ${words}` };
}
