import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/test-file.ts";
import {
  type Endpoint,
  endpointsOf,
  type JsonSchema,
  type OpenApiDocument,
  resolve,
} from "../openapi-document.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body, callMcp, on, operatorKey, test } from "./api.ts";

interface World {
  own: Things;
  others: Things;
  nobody: Things;
}

const send = (api: Api, { method, path, headers, body: text }: Asked, key: Headers) =>
  api.send(method, path, {
    headers: { ...headers, ...key },
    ...(text !== undefined && { body: text }),
  });

/** Removes what a probe has made, so that the next one meets the same. */
async function undo(api: Api, reply: Reply, key: Headers): Promise<void> {
  if (reply.status >= 300 || !reply.headers.get("Content-Type")?.startsWith("application/json"))
    return;
  const { job_id, batch_id, file_id, session_id } = body(reply) as Record<string, string>;
  if (batch_id && reply.status === 202)
    await api.post(`/batches/${batch_id}/cancel`, undefined, key);
  else if (job_id && reply.status === 202) await api.post(`/jobs/${job_id}/cancel`, undefined, key);
  else if (session_id && reply.status === 202)
    await api.send("DELETE", `/sessions/${session_id}`, { headers: key });
  else if (file_id) await api.send("DELETE", `/files/${file_id}`, { headers: key });
}

const lists = [
  "/executions?view=all",
  "/dlq",
  "/dlq/stats",
  "/files",
  "/sessions",
  "/usage",
  "/job-types",
  "/openapi.json",
];
async function seen(api: Api, key: Headers, more: string[] = []): Promise<Answers> {
  const reads = [...lists, ...more].map(async (path) => [path, (await api.get(path, key)).text]);
  return Object.fromEntries(await Promise.all(reads)) as Answers;
}

const uri = ({ job }: Things): string => `airlock://jobs/${job}/artifacts/out.txt`;
const isWrite = ({ what }: Probe): boolean => !/^(GET|HEAD) /.test(what);

/** Sends what each probe carries, of somebody else and of nobody, and compares the answers. */
async function walk(
  api: Api,
  probe: Probe,
  key: Headers,
  { own, others, nobody }: World,
): Promise<void> {
  const answers: Answer[] = [];
  for (const carried of [others, nobody]) {
    const reply = await send(api, probe.ask(carried, own), key);
    await undo(api, reply, key);
    answers.push({ carried, reply });
  }
  const [ofOthers, ofNobody] = answers as [Answer, Answer];
  expectSameAnswer(probe.what, probe.ask(others, own), ofOthers, ofNobody);
}

interface Tool {
  name: string;
  inputSchema: { properties?: object };
}

/** `job_id` and `session_id` are somebody's; the others can carry nothing of a tenant. */
const mcpArguments = new Set(
  `job_id session_id name offset code language input_data files stdin args job_type timeout requirements
  wait_seconds idle_timeout restart`.split(/\s+/),
);

/** New ones for each row, and for its second try. */
function twoTenants(): [a: string, b: string] {
  const number = crypto.randomUUID().slice(0, 8);
  return [`a-${number}`, `b-${number}`];
}

export const isolationRows = on("with tenants", [
  test("Whatever of another tenant a request carries, the answer is the one for ids that nobody has; a parameter that this row does not know fails it", async (api) => {
    const [a, b] = twoTenants();
    const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
    const own = await makeThings(api, b, keyB);
    const others = await makeThings(api, a, keyA, "ml");
    // A call of an open one would wait for its agent.
    await api.send("DELETE", `/sessions/${own.session}`, { headers: keyB });
    const world = { own, others, nobody: nobodys(others) };
    await api.post("/execute/async", { code: "later" }, keyB);
    const before = await seen(api, keyA);
    const document = body(await api.get("/openapi.json", keyB)) as OpenApiDocument;
    const endpoints = endpointsOf(document).filter(({ path }) => !isForOperators(path));
    const probes = endpoints.flatMap((endpoint) => probesOf(document, endpoint));
    expect(probes.length).toBeGreaterThan(70);
    // Reads first, some at once: what writes carry is in this tenant's own records afterwards.
    await Promise.all(
      [0, 1, 2].map(async (part) => {
        const reads = probes.filter((probe, n) => !isWrite(probe) && n % 3 === part);
        for (const probe of reads) await walk(api, probe, keyB, world);
      }),
    );
    for (const probe of probes.filter(isWrite)) await walk(api, probe, keyB, world);
    expectUnchanged(before, await seen(api, keyA));
    // What the walk carries is there: its owner finds it.
    for (const { what, ask } of probes.filter((probe) =>
      /^GET \S*\{id\}\S* with path$/.test(probe.what),
    )) {
      if (what.includes("/build") || what.includes("/sessions/{id}/files")) continue;
      const { status } = await send(api, ask(others, others), keyA);
      expect({ what, status }).toEqual({ what, status: 200 });
    }
  }),
  test("PUT /job-types/{name} makes a job type that the tenant alone sees, and DELETE removes it", async (api) => {
    const [a, b] = twoTenants();
    const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
    const path = `/job-types/${a}.own`;
    const ask = async (method: string, key: Headers, text?: string) => {
      const headers = { ...key, ...(text && { "Content-Type": "application/json" }) };
      return api.send(method, path, { headers, ...(text && { body: text }) });
    };
    const made = json(await ask("PUT", keyA, '{"timeout": 5, "apt": ["jq"]}'));
    expect(made).toMatchObject({ name: `${a}.own`, timeout: 5, apt: ["jq"], image_exists: false });
    const statuses = [
      (await ask("GET", keyA)).status,
      (await ask("GET", keyB)).status,
      (await ask("PUT", keyB, "{}")).status,
      (await ask("DELETE", keyB)).status,
      (await ask("PUT", await keyOf(api, a, ["run", "read"]), "{}")).status,
      (await ask("PUT", keyA, '{"dockerfile": "RUN id"}')).status,
      (await ask("DELETE", keyA)).status,
      (await ask("DELETE", keyA)).status,
    ];
    expect(statuses).toEqual([200, 404, 400, 400, 403, 400, 200, 404]);
  }),
  test("MCP: whatever of another tenant a tool or a resource is given, it answers as for what nobody has; an argument that this row does not know fails it", async (api) => {
    const [a, b] = twoTenants();
    const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
    const others = await makeThings(api, a, keyA, "ml");
    const nobody = nobodys(others);
    const call = (key: Headers, method: string, params?: object) =>
      callMcp(api, key, method, params);
    const listed = /\{.*\}/s.exec(await call(keyB, "tools/list"))![0];
    const { tools } = (JSON.parse(listed) as { result: { tools: Tool[] } }).result;
    const carrying = tools.flatMap(({ name, inputSchema: { properties = {} } }) => {
      const unknown = Object.keys(properties).filter((one) => !mcpArguments.has(one));
      expect({ name, unknown }).toEqual({ name, unknown: [] });
      const id = ["job_id", "session_id"].find((one) => one in properties);
      return id === undefined ? [] : [{ name, id }];
    });
    const names = ["get_job", "cancel_job", "read_artifact", "run_in_session", "close_session"];
    expect(carrying.map(({ name }) => name)).toEqual(expect.arrayContaining(names));
    const further: Record<string, object> = {
      read_artifact: { name: "out.txt" },
      run_in_session: { code: "1" },
    };
    const asks: [string, (things: Things) => object][] = [
      ...carrying.map(({ name, id }): [string, (things: Things) => object] => [
        "tools/call",
        ({ job, session }) => ({
          name,
          arguments: { [id]: id === "job_id" ? job : session, ...further[name] },
        }),
      ]),
      ["resources/read", (things) => ({ uri: uri(things) })],
    ];
    for (const [method, params] of asks) {
      const answers = await Promise.all(
        [others, nobody].map(async (things) =>
          withoutIds(await call(keyB, method, params(things))),
        ),
      );
      expect({ method, answer: answers[0] }).toEqual({ method, answer: answers[1] });
    }
    const own = await call(keyA, "tools/call", {
      name: "read_artifact",
      arguments: { job_id: others.job, name: "out.txt" },
    });
    expect(own).toContain(secretsOf(a)[5]);
    expect(await call(keyA, "resources/read", { uri: uri(others) })).toContain("artifact-of-");
  }),
  test("While a tenant reads and follows its job, another one that asks for the same id at the same moment gets nothing of it", async (api) => {
    const [a, b] = twoTenants();
    const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
    const { job, waiting } = await makeThings(api, a, keyA, "ml");
    const end = new AbortController();
    const follow = fetch(`${api.url}/jobs/${waiting}/events`, {
      headers: keyA,
      signal: end.signal,
    });
    await (await follow).body?.getReader().read();
    const paths = [
      `/executions/${job}?view=all`,
      `/jobs/${job}`,
      `/jobs/${waiting}`,
      `/jobs/${waiting}/events`,
    ];
    for (const path of paths) {
      const isStream = path.endsWith("/events");
      const asks = Array.from({ length: 20 }, async (_, n) => {
        const isOwner = n % 2 === 0;
        if (isOwner && isStream) return [];
        const { status } = await api.get(path, isOwner ? keyA : keyB);
        return [`${isOwner ? "owner" : "other"} ${status}`];
      });
      const answers = new Set((await Promise.all(asks)).flat());
      const expected = isStream ? ["other 404"] : ["owner 200", "other 404"];
      expect({ path, answers: [...answers].sort() }).toEqual({ path, answers: expected.sort() });
    }
    end.abort();
  }),
  test("What a tenant does shows in no answer that another one gets about itself", async (api) => {
    const [a, b] = twoTenants();
    const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
    const { waiting, heard } = await makeThings(api, b, keyB);
    const own = [
      `/jobs/${waiting}/result`,
      `/webhooks/events?after=${heard}`,
      "/webhooks/events",
      "/webhooks/deliveries?status=delivered",
    ];
    const before = await seen(api, keyB, own);
    await makeThings(api, a, keyA, "ml");
    expectUnchanged(before, await seen(api, keyB, own));
  }),
]);

type Value = (things: Things) => string;

/** Ids in paths, by the beginning of the path. */
const ids: Record<string, Value> = {
  "/jobs": ({ job }) => job,
  "/executions": ({ job }) => job,
  "/batches": ({ batch }) => batch,
  "/files": ({ file }) => file,
  "/sessions": ({ session }) => session,
  "/dlq": ({ letter }) => letter,
  "/job-types": ({ tenant }) => `${tenant}.own`,
  "/webhooks/deliveries": ({ delivery }) => delivery,
};

/** Other ids in paths that a client's request may have, and what it takes in place of a tenant's. */
const plainPaths: Record<string, string> = {
  artifact_name: "out.txt",
  context_id: "default",
  path: "out.txt",
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
  job_type: ({ tenant }) => `${tenant}.own`,
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
  extends: ({ tenant }) => ({ extends: `${tenant}.own` }),
  job_type: ({ tenant }) => ({ job_type: `${tenant}.own` }),
  idempotency_key: ({ tenant }) => ({ idempotency_key: `job-${tenant}` }),
  "idempotency_key of /sessions": ({ tenant }) => ({ idempotency_key: `session-${tenant}` }),
  "idempotency_key of /execute/batch": ({ tenant }) => ({ idempotency_key: `batch-${tenant}` }),
  "files.text": ({ tenant }) => ({ files: [{ name: "a", text: secretsOf(tenant)[3] }] }),
  metadata: ({ tenant }) => ({ metadata: { team: secretsOf(tenant)[4] } }),
  code: ({ tenant }) => ({ code: `"${secretsOf(tenant)[0]}"` }),
};

const plainFields = new Set(
  `input_data timeout startup_timeout preset apt npm languages memory_limit cpu_limit requirements files files.name files.base64 files.artifact.name
  language command compile_command compile_timeout stdin args run_at queue_timeout max_attempts callback_url jobs atomic
  env idle_timeout lifetime wait context restart fetch files.to
  results tools tools.name tools.description tools.parameters tools.awaitable tool_timeout result
  error`.split(/\s+/),
);

/** What one request carries, made of somebody's things. */
interface Asked {
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: string;
}
interface Probe {
  /** Says what it carries. */
  what: string;
  ask: (carried: Things, own: Things) => Asked;
}

/** Whether the table of scopes keeps clients out, whatever the request carries. */
const isForOperators = (path: string): boolean =>
  /^\/(hosts|agents|keys|tenants|audit)(\/|$)/.test(path);

/** @throws Error that names what this table does not know. */
function probesOf(document: OpenApiDocument, { method, path, operation }: Endpoint): Probe[] {
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
        .replace(/\{(job_id|id|name)\}/, () =>
          Object.hasOwn(ids, root) ? ids[root]!(of("path")) : "x",
        )
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

type Json = Record<string, unknown>;
type Headers = Record<string, string>;

/** Something of each kind that a tenant can have. */
export interface Things {
  tenant: string;
  /** Has failed; has output, an artifact, metadata, a dead letter, an event, a delivery. */
  job: string;
  /** Waits; the only member of the batch. */
  waiting: string;
  batch: string;
  /** A rerun of `job`, which waits. */
  child: string;
  file: string;
  /** Waits for an agent. */
  session: string;
  letter: string;
  delivery: string;
  /** Cursor of `GET /webhooks/events`. */
  heard: string;
  /** Id of the last event of `job`. */
  event: string;
}

const all = ["run", "read", "build", "monitor"];

/** Makes a key of a tenant, and returns its header. */
async function keyOf(api: Api, tenant: string, scopes = all): Promise<Headers> {
  const asked = { name: "a-key", tenant, scopes };
  const reply = await api.post("/keys", asked, { "X-API-Key": operatorKey });
  expect(reply.status).toBe(201);
  return { "X-API-Key": (JSON.parse(reply.text) as { key: string }).key };
}

const json = (reply: Reply): Json => body(reply) as Json;

/** Texts that only the tenant's own answers may have. */
const secretsOf = (tenant: string): string[] =>
  ["code", "error", "output", "file", "metadata", "artifact"].map((what) => `${what}-of-${tenant}`);

/** @param job_type of its jobs: those of `ml` are taken before all others. */
async function makeThings(
  api: Api,
  tenant: string,
  key: Headers,
  job_type = "default",
): Promise<Things> {
  const [code, message, output, content, metadata, artifact] = secretsOf(tenant);
  const type = { headers: { ...key, "Content-Type": "application/json" }, body: "{}" };
  expect((await api.send("PUT", `/job-types/${tenant}.own`, type)).status).toBe(200);
  const heard = String(json(await api.get("/webhooks/events", key))["cursor"]);
  const asked = {
    code: `"${code}"`,
    job_type,
    metadata: { team: metadata },
    idempotency_key: `job-${tenant}`,
  };
  const job = String(json(await api.post("/execute/async", asked, key))["job_id"]);
  const agent = api.agent();
  let taken = await agent.takeJob();
  while (taken.execution_id !== job) taken = await agent.takeJob();
  const { lease_id } = taken;
  await agent.upload(lease_id, "out.txt", artifact!);
  const error = { type: "value_error", message: message!, phase: "execution" } as const;
  const stdout_base64 = btoa(output!);
  await agent.result(lease_id, { status: "failed", exit_code: 1, error, stdout_base64 });
  // Gives the jobs back that it has taken besides.
  await agent.leave();

  const members = { jobs: [{ code: `"${code}"`, job_type }], idempotency_key: `batch-${tenant}` };
  const batch = json(await api.post("/execute/batch", members, key));
  const [member] = batch["jobs"] as { job_id: string }[];
  const child = String(json(await api.post(`/jobs/${job}/rerun`, {}, key))["job_id"]);
  const headers = { ...key, "Idempotency-Key": `file-${tenant}`, "Content-Type": "text/plain" };
  const upload = { headers, body: content! };
  const file = String(json(await api.send("POST", "/files?name=f.txt", upload))["file_id"]);
  const held = { wait: 0, metadata: { team: metadata }, idempotency_key: `session-${tenant}` };
  const session = String(json(await api.post("/sessions", held, key))["session_id"]);
  const newest = async (path: string): Promise<string> => {
    const { items } = json(await api.get(path, key)) as { items: { id: number }[] };
    return String(items[0]?.id ?? "");
  };
  let delivery = "";
  await waitUntil("a delivery", async () => {
    delivery = await newest("/webhooks/deliveries?limit=1");
    return delivery !== "";
  });
  const events = await api.get(`/jobs/${job}/events`, key);
  return {
    tenant,
    job,
    waiting: member!.job_id,
    batch: String(batch["batch_id"]),
    child,
    file,
    session,
    letter: await newest("/dlq?limit=1"),
    delivery,
    heard,
    event: [...events.text.matchAll(/^id: ?(.*)$/gm)].at(-1)![1]!,
  };
}

/** Ids of the same time and form that nobody has. */
export function nobodys(things: Things): Things {
  const tail = crypto.randomUUID().slice(-12);
  const other = (id: string): string => id.slice(0, -12) + tail;
  const { job, waiting, batch, child, file, session, letter, delivery, heard, event } = things;
  return {
    tenant: `n${things.tenant.slice(1)}`,
    job: other(job),
    waiting: other(waiting),
    batch: other(batch),
    child: other(child),
    file: other(file),
    session: other(session),
    letter: String(Number(letter) + 7),
    delivery: String(Number(delivery) + 7),
    heard: String(Number(heard) + 7),
    event,
  };
}

/** An answer, and whose things its request carried. */
export interface Answer {
  carried: Things;
  reply: Reply;
}

/** @throws Error that shows what an answer about another tenant's things tells, and the one about nobody's does not. */
export function expectSameAnswer(
  what: string,
  sent: object,
  ofOthers: Answer,
  ofNobody: Answer,
): void {
  const request = JSON.stringify(sent);
  const leaked = secretsOf(ofOthers.carried.tenant).filter(
    (one) => ofOthers.reply.text.includes(one) && !request.includes(one),
  );
  expect({ what, leaked, ...told(ofOthers) }).toEqual({ what, leaked: [], ...told(ofNobody) });
}

const uuid = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const withoutIds = (text: string): string => text.replaceAll(uuid, "ID");

/** What an answer says, without ids, times, and what the request carried. */
function told({ carried, reply: { status, headers, text } }: Answer): object {
  const values = [...Object.values<string>({ ...carried }), ...secretsOf(carried.tenant)];
  const sent = values.filter((value) => value.length > 1).toSorted((a, b) => b.length - a.length);
  const own = sent.reduce((rest, value) => rest.replaceAll(value, "SENT"), text);
  const plain = withoutListening(withoutIds(own))
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replaceAll(/"sha256":"[0-9a-f]{64}"/g, '"sha256":"HASH"');
  const names = [...headers.keys()].filter((name) => name !== "connection").sort();
  return { status, names, type: headers.get("Content-Type"), plain };
}

/** The end of listening comes nearer. */
const withoutListening = (text: string): string => text.replace(/"listening_s":\d+/, "");

/** Answers by their paths. */
type Answers = Record<string, string>;

/** @throws Error that shows each path whose answer is another one than before. */
export function expectUnchanged(before: Answers, after: Answers): void {
  const plain = (answers: Answers): Answers =>
    Object.fromEntries(
      Object.entries(answers).map(([path, text]) => [path, withoutListening(text)]),
    );
  expect(plain(after)).toEqual(plain(before));
}
