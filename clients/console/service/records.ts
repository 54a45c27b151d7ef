import type {
  AuditPage,
  DeadLetterPage,
  DerivedJob,
  ExecutionRecord,
  Session,
  UploadedFile,
  WebhookDelivery,
} from "../../typescript/src/generated.ts";
import { formatCount } from "../model/numbers.ts";
import { api, ask, files, request } from "./client.ts";

export type Attempt = NonNullable<ExecutionRecord["attempts"]>[number];
export type Artifact = NonNullable<ExecutionRecord["artifacts"]>[number];
export type AuditEntry = AuditPage["items"][number];
export type DeadLetter = DeadLetterPage["items"][number];

/** An execution as lists show it. */
export type Listed = Pick<
  ExecutionRecord,
  | "execution_id"
  | "status"
  | "job_type"
  | "created_at"
  | "started_at"
  | "ended_at"
  | "duration_ms"
  | "error"
  | "relationship"
  | "metadata"
  | "attempts"
  | "run_at"
  | "tenant"
>;
const listed =
  "status,job_type,created_at,started_at,ended_at,duration_ms,error,relationship,metadata,attempts,run_at";
/** Where only ids are needed, which come with every field. */
const least = "status";

/** A list that the service has in pages, the newest item first. */
export interface Source<Item> {
  path: string;
  /** Parameters that narrow it down: in requests and, with the same names, in addresses of the console. */
  filters: readonly string[];
  /** Ids grow with time. */
  idOf: (item: Item) => string | number;
  /** Fields of an item that are asked for, where not all are needed. */
  fields?: string;
}

export const executions = {
  path: "/executions",
  filters: [
    "status",
    "job_type",
    "metadata",
    "error",
    "created_after",
    "created_before",
    "parent_execution_id",
    "batch_id",
    "session_id",
  ] as const,
  idOf: ({ execution_id: id }) => id,
  fields: listed,
} satisfies Source<Listed>;
export const sessions = {
  path: "/sessions",
  filters: ["status"] as const,
  idOf: ({ session_id: id }) => id,
} satisfies Source<Session>;
export const deadLetters = {
  path: "/dlq",
  filters: ["error_type"] as const,
  idOf: ({ id }) => id,
} satisfies Source<DeadLetter>;
export const deliveries = {
  path: "/webhooks/deliveries",
  filters: ["status", "endpoint", "job_id"] as const,
  idOf: ({ id }) => id,
} satisfies Source<WebhookDelivery>;
export const auditEntries = {
  path: "/audit",
  filters: ["action", "tenant"] as const,
  idOf: ({ id }) => id,
} satisfies Source<AuditEntry>;

/** Items on a page of a list. */
export const pageSize = 50;
const mostCounted = 1000;

export interface Page<T> {
  items: T[];
  has_more: boolean;
}

/** The filters in the query of an address; each may be there several times. */
export const filtersOf = <Name extends string>(
  { filters }: { filters: readonly Name[] },
  query: URLSearchParams,
): Record<Name, string[]> =>
  Object.fromEntries(filters.map((name) => [name, query.getAll(name).filter(Boolean)])) as Record<
    Name,
    string[]
  >;

/** The page that the query of an address names: its filters, and the id or the offset where the page begins. */
export function loadPage<Item>(
  source: Source<Item>,
  query: URLSearchParams,
  signal: AbortSignal,
  limit = pageSize,
): Promise<Page<Item>> {
  const [before, offset] = ["before", "offset"].map((name) => query.get(name) || undefined);
  const asked = { ...filtersOf(source, query), before, offset, limit, fields: source.fields };
  return ask(source.path, { query: asked }, { signal });
}

/** The newest items that the filters of an address find. Of executions only the ids are sure to be there. */
const loadMost = <Item>(
  source: Source<Item>,
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<Page<Item>> =>
  loadPage(source.fields ? { ...source, fields: least } : source, query, signal, mostCounted);

/** All items that the filters find, page by page. */
export async function* allPages<Item>(
  source: Source<Item>,
  query: URLSearchParams,
  signal: AbortSignal,
): AsyncGenerator<Item[], void> {
  const asked = new URLSearchParams(query);
  asked.delete("before");
  for (;;) {
    const { items, has_more: hasMore } = await loadMost(source, asked, signal);
    yield items;
    if (!hasMore) return;
    asked.set("before", String(source.idOf(items.at(-1)!)));
  }
}

/** How many executions the filters find, as text. More than 1,000 are not counted. */
export async function countExecutions(query: URLSearchParams, signal: AbortSignal) {
  const asked = new URLSearchParams(query);
  asked.delete("before");
  const { items, has_more: hasMore } = await loadMost(executions, asked, signal);
  return hasMore ? `more than ${formatCount(items.length)}` : formatCount(items.length);
}

/** The id of the newest execution that ends with this, as lists show ids. */
export async function findByEnd(end: string): Promise<string | undefined> {
  const soon = AbortSignal.timeout(10_000);
  const { items } = await loadMost(executions, new URLSearchParams(), soon);
  return items.find(({ execution_id: id }) => id.endsWith(end.toLowerCase()))?.execution_id;
}

export const getExecution = (id: string, signal?: AbortSignal): Promise<ExecutionRecord> =>
  api.getExecution({ id, view: "all" }, { signal });

/** A file that an execution wrote or, with `isInput`, was given. */
export function openArtifact(
  id: string,
  name: string,
  isInput: boolean,
  signal?: AbortSignal,
): Promise<Response> {
  const steps = ["jobs", id, "artifacts", ...name.split("/")].map(encodeURIComponent);
  return request(`/${steps.join("/")}${isInput ? "?from=input" : ""}`, {}, { signal });
}

/** Uploads a file that an execution was given, for another one. */
export async function copyInput(id: string, name: string): Promise<UploadedFile> {
  const answer = await openArtifact(id, name, true);
  return files.upload(name, await answer.blob());
}

export interface Submitted {
  code: string;
  input: string;
}

/** The code and the input of an execution. */
export async function getSubmitted(id: string, signal?: AbortSignal): Promise<Submitted> {
  const [code, input] = await Promise.all(
    ["_code.py", "_input.json"].map(async (name) =>
      (await openArtifact(id, name, false, signal)).text(),
    ),
  );
  return { code: code!, input: input! };
}

/** With an idempotency key, the caller repeats the request, so it is not repeated here. */
export const rerun = (id: string, idempotencyKey?: string): Promise<DerivedJob> =>
  idempotencyKey === undefined
    ? api.rerunJob({ id })
    : api.rerunJob({ id, idempotencyKey }, { retries: 0 });

export const isEnded = (record: Pick<ExecutionRecord, "status"> | undefined): boolean =>
  record !== undefined && record.status !== "queued" && record.status !== "running";

/** A call as its session lists it. */
export type ListedCall = Listed & Pick<ExecutionRecord, "call" | "context">;

/** The newest calls of a session. */
export const listCalls = (id: string, signal: AbortSignal): Promise<Page<ListedCall>> =>
  loadPage(
    { ...executions, fields: `${listed},call,context` },
    new URLSearchParams({ session_id: id }),
    signal,
  );

const endings: Record<NonNullable<Session["reason"]>, string> = {
  deleted: "ended by a client",
  idle: "no call for its idle time",
  lifetime: "its lifetime was over",
  agent_lost: "its agent was lost",
  agent_stopped: "its agent was stopped",
  out_of_memory: "out of memory",
  engine_lost: "its sandbox broke",
  start_failed: "no interpreter could be started",
};

/** The word for its state: one that takes calls is busy while a call runs. */
export const stateOf = ({ status, busy }: Session): string =>
  status === "ready" && busy ? "busy" : status;

/** Why it waits, or has ended. */
export function whyOf({ message, reason, error }: Session): string | undefined {
  if (reason === null) return message;
  return error ? `${endings[reason]}: ${error.message}` : endings[reason];
}
