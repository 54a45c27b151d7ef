import {
  type Endpoint,
  type JsonSchema,
  type OpenApiDocument,
  resolve,
} from "../openapi-document.ts";
import { type Things, secretsOf } from "./isolation-world.ts";

type Value = (things: Things) => string;

/** Ids in paths, by the beginning of the path. */
const ids: Record<string, Value> = {
  "/jobs": ({ job }) => job,
  "/executions": ({ job }) => job,
  "/batches": ({ batch }) => batch,
  "/files": ({ file }) => file,
  "/sessions": ({ session }) => session,
  "/dlq": ({ letter }) => letter,
  "/webhooks/deliveries": ({ delivery }) => delivery,
};

/** Other ids in paths that a client's request may have, and what it takes in place of a tenant's. */
const plainPaths: Record<string, string> = {
  artifact_name: "out.txt",
  context_id: "default",
  path: "out.txt",
  name: "default",
  number: "1",
};

/** Parameters that can carry something of a tenant. */
const carriers: Record<string, Value> = {
  "Idempotency-Key": ({ tenant }) => `job-${tenant}`,
  "Idempotency-Key of /execute/batch": ({ tenant }) => `batch-${tenant}`,
  "Idempotency-Key of /files": ({ tenant }) => `file-${tenant}`,
  "Idempotency-Key of /sessions": ({ tenant }) => `session-${tenant}`,
  "If-None-Match": ({ tenant }) => `"${tenant}"`,
  "If-Range": ({ tenant }) => `"${tenant}"`,
  "Last-Event-ID": ({ event }) => event,
  "X-Airlock-Tenant": ({ tenant }) => tenant,
  after: ({ event }) => event,
  "after of /jobs/{id}/tool-calls": () => "0",
  "after of /webhooks/events": ({ heard }) => heard,
  "before of /dlq": ({ letter }) => letter,
  "before of /executions": ({ job }) => job,
  "before of /files": ({ file }) => file,
  "before of /sessions": ({ session }) => session,
  "before of /webhooks/deliveries": ({ delivery }) => delivery,
  batch_id: ({ batch }) => batch,
  error: ({ tenant }) => secretsOf(tenant)[1]!,
  job_id: ({ job }) => job,
  metadata: ({ tenant }) => `team:${secretsOf(tenant)[4]}`,
  parent_execution_id: ({ job }) => job,
  session_id: ({ session }) => session,
};

/** Parameters that can carry nothing of a tenant, and a value for those that are required. */
const plain: Record<string, string | undefined> = {
  Prefer: undefined,
  Range: undefined,
  "X-Airlock-SHA256": undefined,
  "X-Correlation-ID": undefined,
  all: "true",
  created_after: undefined,
  created_before: undefined,
  endpoint: undefined,
  error_type: undefined,
  fields: undefined,

  from: undefined,
  job_type: undefined,
  kind: undefined,
  "path of /sessions/{id}/files": undefined,
  limit: undefined,
  name: "new.txt",
  offset: undefined,
  status: undefined,
  stream: "stdout",
  timeout: undefined,
  version_tag: undefined,
  view: undefined,
  wait: undefined,
  hours: undefined,
  step: undefined,
};

/** Fields of bodies that can carry something of a tenant: a body that has it, without `code`. */
const bodies: Record<string, (things: Things) => object> = {
  "files.file_id": ({ file }) => ({ files: [{ name: "a", file_id: file }] }),
  "files.artifact": ({ job }) => ({
    files: [{ name: "a", artifact: { job_id: job, name: "out.txt" } }],
  }),
  "files.artifact.job_id": ({ job }) => ({
    files: [{ name: "a", artifact: { job_id: job, name: "out.txt" } }],
  }),
  idempotency_key: ({ tenant }) => ({ idempotency_key: `job-${tenant}` }),
  "idempotency_key of /sessions": ({ tenant }) => ({ idempotency_key: `session-${tenant}` }),
  "idempotency_key of /execute/batch": ({ tenant }) => ({ idempotency_key: `batch-${tenant}` }),
  "files.text": ({ tenant }) => ({ files: [{ name: "a", text: secretsOf(tenant)[3] }] }),
  metadata: ({ tenant }) => ({ metadata: { team: secretsOf(tenant)[4] } }),
  code: ({ tenant }) => ({ code: `"${secretsOf(tenant)[0]}"` }),
};

const plainFields = new Set(
  `input_data timeout startup_timeout job_type requirements files files.name files.base64 files.artifact.name
  language command compile_command compile_timeout stdin args run_at queue_timeout max_attempts callback_url jobs atomic
  env idle_timeout lifetime wait context restart fetch files.to
  results tools tools.name tools.description tools.parameters tools.awaitable tool_timeout result
  error`.split(/\s+/),
);

/** What one request carries, made of somebody's things. */
export interface Asked {
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: string;
}
export interface Probe {
  /** Says what it carries. */
  what: string;
  ask: (carried: Things, own: Things) => Asked;
}

/** Whether the table of scopes keeps clients out, whatever the request carries. */
export const isForOperators = (path: string): boolean =>
  /^\/(hosts|agents|keys|tenants|audit)(\/|$)/.test(path);

/** @throws Error that names what this table does not know. */
export function probesOf(
  document: OpenApiDocument,
  { method, path, operation }: Endpoint,
): Probe[] {
  const parameters = operation.parameters.map((one) => resolve(document, one));
  const root = Object.keys(ids).find((start) => path.startsWith(start)) ?? "";
  const known = (table: Record<string, unknown>, name: string): string | undefined =>
    [`${name} of ${path}`, name].find((key) => Object.hasOwn(table, key));
  const carrying: string[] = [];
  for (const { name, in: place } of parameters) {
    if (place === "path") {
      if (Object.hasOwn(plainPaths, name)) continue;
      if (!Object.hasOwn(ids, root)) throw new Error(`${method} ${path}: unknown id ${name}`);
      carrying.push("path");
    } else if (known(carriers, name)) carrying.push(name);
    else if (!known(plain, name)) throw new Error(`${method} ${path}: unknown parameter ${name}`);
  }
  const content = operation.requestBody?.content["application/json"];
  const fields = content ? fieldsOf(document, content.schema) : [];
  for (const field of fields) {
    const name = field.replace(/^jobs\./, "");
    if (known(bodies, name)) carrying.push(`body ${field}`);
    else if (!plainFields.has(name)) throw new Error(`${method} ${path}: unknown field ${field}`);
  }

  const make =
    (what: string[]) =>
    (carried: Things, own: Things): Asked => {
      const of = (name: string): Things => (what.includes(name) ? carried : own);
      const query = new URLSearchParams();
      const headers: Record<string, string> = {};
      for (const { name, in: place } of parameters) {
        const key = known(carriers, name);
        const value = what.includes(name) && key ? carriers[key]!(carried) : plain[name];
        if (place === "query" && value !== undefined) query.set(name, value);
        if (place === "header" && value !== undefined) headers[name] = value;
      }
      const filled = path
        .replace(/\{(job_id|id)\}/, () => (Object.hasOwn(ids, root) ? ids[root]!(of("path")) : "x"))
        .replaceAll(/\{(\w+)\}/g, (_, name: string) => plainPaths[name]!);
      const asked = {
        method,
        path: query.size > 0 ? `${filled}?${query.toString()}` : filled,
        headers,
      };
      if (!operation.requestBody) return asked;
      if (!content) return { ...asked, body: secretsOf(of("content").tenant)[3]! };
      headers["Content-Type"] = "application/json";
      const base = {
        ...(fields.some((field) => /(^|\.)code$/.test(field)) && { code: "1" }),
        ...(fields.includes("wait") && { wait: 0 }),
        ...(fields.includes("result") && { result: 1 }),
      };
      const given = what.filter((one) => one.startsWith("body ")).map((one) => one.slice(5));
      const inner = (isMember: boolean): object =>
        given
          .filter((field) => field.startsWith("jobs.") === isMember)
          .map((field) => bodies[known(bodies, field.replace(/^jobs\./, ""))!]!(carried))
          .reduce((all, one) => ({ ...all, ...one }), {});
      const whole =
        path === "/execute/batch"
          ? { jobs: [{ ...base, ...inner(true) }], ...inner(false) }
          : { ...base, ...inner(false) };
      return { ...asked, body: JSON.stringify(whole) };
    };
  const isUpload = operation.requestBody !== undefined && !content;
  if (isUpload) carrying.push("content");
  // What follows each id, alone and with the rest: a path of somebody else with its cursors and keys.
  const sets = carrying.map((one) => [one]);
  if (carrying.includes("path") && carrying.length > 1)
    sets.push(carrying.filter((one) => !one.startsWith("body ")));
  return sets.map((set) => ({ what: `${method} ${path} with ${set.join(", ")}`, ask: make(set) }));
}

/** The names of all fields of a body, those of lists and objects after a dot. */
function fieldsOf(document: OpenApiDocument, schema: JsonSchema, depth = 0): string[] {
  const found = resolve(document, schema);
  if (depth > 6) return [];
  const options = ["anyOf", "oneOf", "allOf"].flatMap((key) => (found[key] ?? []) as JsonSchema[]);
  const items = found["items"] ? [found["items"] as JsonSchema] : [];
  const inner = [...options, ...items].flatMap((one) => fieldsOf(document, one, depth + 1));
  const properties = Object.entries((found["properties"] ?? {}) as Record<string, JsonSchema>);
  const named = properties.flatMap(([name, one]) => [
    name,
    ...(name === "input_data"
      ? []
      : fieldsOf(document, one, depth + 1).map((field) => `${name}.${field}`)),
  ]);
  return [...new Set([...inner, ...named])];
}
