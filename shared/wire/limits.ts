// Without zod, so that the console and the command line can have it.

/** Limits that the contract fixes (docs/contract.md section 10), and further limits that API and agent share. */
export const limits = {
  /** Seconds; the largest `timeout` that the schema accepts. The configured `max_timeout` is lower. */
  timeoutSchemaMaxS: 86_400,
  timeoutDefaultS: 30,
  startupTimeoutMinS: 10,
  startupTimeoutMaxS: 600,
  startupTimeoutDefaultS: 60,
  waitTimeoutDefaultS: 30,
  compileTimeoutDefaultS: 10,
  compileTimeoutMaxS: 300,
  listLimitMax: 1000,
  listLimitDefault: 100,
  /** Leases that an execution may use up before it ends as `internal_error`. */
  maxAttempts: 2,
  /** Lost attempts of an execution that are kept. Those of agents that stopped do not use up an attempt. */
  lostAttemptsMax: 20,
  /** Jobs of one batch. */
  batchMax: 1000,
  /** Processes and threads of a job: the largest `pids` of a job type. */
  pidsMax: 1024,
  /** Bytes of an execution's `stdin` in UTF-8. The request's own limit may be lower. */
  stdinMaxBytes: 64 * 1024 * 1024,
  /** Bytes of an execution's `args` together, UTF-8, one more for each as the kernel counts. */
  argsMaxBytes: 128 * 1024,
  /** Fits into one frame together with a command of `argsMaxBytes`, however long escapes and `{file}` become. */
  compileCommandMaxChars: 8192,
  /** Entries of `args`, and of `command`. */
  argsMax: 10_000,
  /** Entries of an execution's `metadata`. */
  metadataMax: 50,
  /** Seconds; the largest `queue_timeout`: 30 days. */
  queueTimeoutMaxS: 2_592_000,
  /** A nesting depth well below the limits of `JSON.stringify` and of Python's `json`. */
  jsonDepthMax: 512,
  /** Keys and values of a request's JSON, without those of its `input_data`. */
  requestMaxValues: 100_000,
  /** Keys and values of `input_data`; in a batch, of all its jobs together. */
  inputMaxValues: 1_000_000,
  /** Bytes of `/output/result.json`. */
  resultJsonMaxBytes: 10 * 1024 * 1024,
  /** Keys and values of `/output/result.json`. */
  resultJsonMaxValues: 1_000_000,
  /** Bytes of a build's log. */
  buildLogMaxBytes: 1024 * 1024,
  /** Files kept from one `/output`. */
  artifactCountMax: 1000,
  /** Bytes of one artifact's name, UTF-8. */
  artifactNameMaxBytes: 1024,
  /** What a job shows: items, bytes of all of them, and of one; see agent/python/cells.py. */
  resultItemsMax: 1000,
  resultItemsMaxBytes: 8 * 1024 * 1024,
  resultItemMaxBytes: 1024 * 1024,
  /** Functions of the caller, and bytes of their definitions as JSON. */
  toolsMax: 100,
  toolsMaxBytes: 128 * 1024,
  /** Seconds that the calls of a job wait for their answers. */
  toolTimeoutDefaultS: 300,
  /** Calls of a job that wait at once, calls in all, bytes of one's arguments as JSON, and of all of them. */
  toolCallsPendingMax: 32,
  toolCallsMax: 1000,
  toolCallMaxBytes: 1024 * 1024,
  toolCallsMaxBytes: 32 * 1024 * 1024,
  /** Bytes of an answer as JSON. */
  toolAnswerMaxBytes: 1024 * 1024,
  /** What a job shows and what it calls is numbered together. */
  runItemsMax: 2000,
  /** Files of one request. */
  inputFilesMax: 100,
  requirementsMax: 100,
  /** Contexts of a session, its first one included. */
  contextsMax: 8,
  /** Calls of a session that can wait. */
  callsQueuedMax: 100,
  /** Environment variables of a session or a call, and their bytes together. */
  envMax: 100,
  envMaxBytes: 64 * 1024,
  /** Seconds; the longest `idle_timeout`: a week. */
  idleTimeoutMaxS: 604_800,
} as const;

/** What a key may do; api/http/scopes.ts lists the routes of each. */
export const scopes = ["run", "read", "build", "monitor", "agents", "admin"] as const;

/** What the audit log tells of. */
export const auditActions = [
  "key.create",
  "key.rotate",
  "key.revoke",
  "tenant.limits",
  "host.invite",
  "host.revoke",
  "host.rotate",
  "agent.drain",
  "agent.resume",
  "build.request",
  "job_type.put",
  "job_type.delete",
  "execution.delete",
  "session.delete",
  "dlq.delete",
] as const;
