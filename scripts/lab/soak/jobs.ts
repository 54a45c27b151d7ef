import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Answer,
  type Client,
  type Expected,
  type Json,
  LostToFault,
  newId,
  type Operation,
  Violation,
} from "./client.ts";

/** A job: what is submitted, how it may end, and what it leaves. */
export type Job = {
  readonly mark: string;
  readonly request: Json & { readonly code: string };
  /** How it may end, as `status` or `status/error type`. */
  readonly ends: readonly string[];
  readonly stdout?: string;
  /** Artifacts by name. */
  readonly files?: Readonly<Record<string, string>>;
};

const begin = `import json, sys, time
told = json.load(open("/input/data.json"))
mark = told["mark"]
`;
const print = `${begin}print(mark, sys.stdin.read(), *sys.argv[1:], open("/input/" + mark + ".txt").read())\n`;
/** Its artifacts and its output name one run of the code. */
const writeFiles = `${begin}import uuid
run = str(uuid.uuid4())
open(mark + ".txt", "w").write("file of " + mark)
open("run.txt", "w").write(run)
json.dump({"run": run, "mark": mark}, open("/output/result.json", "w"))
print(mark)
`;
const rest = `${begin}print(mark, flush=True)\ntime.sleep(told["seconds"])\n`;
const takeMemory = `${begin}held = []\nwhile True:\n    held.append(b"x" * 10_000_000)\n`;

type Kind = {
  readonly weight: number;
  readonly code: string;
  readonly ends: readonly string[];
  readonly seconds?: readonly [number, number];
  readonly more?: Json;
};
const kinds: readonly Kind[] = [
  { weight: 8, code: print, ends: ["succeeded"] },
  { weight: 6, code: writeFiles, ends: ["succeeded"] },
  { weight: 3, code: rest, ends: ["succeeded"], seconds: [0.1, 2] },
  { weight: 2, code: `${begin}raise ValueError(mark)`, ends: ["failed/value_error"] },
  { weight: 1, code: `${begin}sys.exit(3)`, ends: ["failed/runtime_error"] },
  {
    weight: 1,
    code: rest,
    ends: ["timeout/execution_timeout"],
    seconds: [60, 61],
    more: { timeout: 1 },
  },
  { weight: 0.5, code: takeMemory, ends: ["oom/oom"], more: { job_type: "small" } },
];

export function makeJob(client: Client, kind: Kind = client.random.weighted(kinds)): Job {
  const mark = client.mark();
  const { code, ends, seconds, more } = kind;
  const isPrint = code === print;
  const inputs = {
    stdin: `stdin of ${mark}`,
    args: ["of", mark],
    files: [{ name: `${mark}.txt`, text: `input of ${mark}` }],
  };
  const stdout = isPrint ? `${mark} stdin of ${mark} of ${mark} input of ${mark}\n` : `${mark}\n`;
  return {
    mark,
    request: {
      code: `# code of ${mark}\n${code}`,
      input_data: { mark, ...(seconds && { seconds: client.random.between(...seconds) }) },
      metadata: { mark },
      // A busy machine's engine takes its time.
      startup_timeout: 300,
      ...(isPrint && inputs),
      ...more,
    },
    ends,
    ...(ends.includes("succeeded") && { stdout }),
    ...(code === writeFiles && { files: { [`${mark}.txt`]: `file of ${mark}` } }),
  };
}

/** For a client that changes its mind: it would run for a minute. */
const longJob = (client: Client): Job =>
  makeJob(client, {
    weight: 0,
    code: rest,
    ends: ["succeeded", "cancelled/cancelled"],
    seconds: [60, 60],
    more: { timeout: 90 },
  });
export const printJob = (client: Client): Job => makeJob(client, kinds[0]);

/** Ends that only the machinery brings about. */
const ofFaults = [
  "failed/internal_error",
  "failed/docker_error",
  "failed/service_unavailable",
  "timeout/startup_timeout",
];

/** @throws LostToFault where a fault explains how it ended. */
export function checkEnd(
  client: Client,
  answer: Answer,
  ends: readonly string[],
  record = answer.json,
  more: readonly string[] = [],
): void {
  const { status, error } = record as { status: string; error: { type: string } | null };
  const end = error === null ? status : `${status}/${error.type}`;
  if (!client.watch.isCalm && !ends.includes(end) && [...ofFaults, ...more].includes(end)) {
    throw new LostToFault(`a job ended as ${end}`);
  }
  client.check(answer, (is: string) => ends.includes(is), end);
}

/** The record of a job that has ended, and everything that the service has of it. */
export async function checkRecord(
  client: Client,
  id: string,
  job: Job,
  more: Expected = {},
): Promise<Json> {
  const path = { id };
  const answer = await client.ask("GET /executions/{id}", { path, query: { view: "all" } });
  checkEnd(client, answer, job.ends);
  const { code, stdin, args } = job.request as { code: string; stdin?: string; args?: string[] };
  const isWell = answer.json["status"] === "succeeded";
  client.check(answer, {
    execution_id: id,
    metadata: { mark: job.mark },
    code_hash: createHash("sha256").update(code).digest("hex"),
    ...(stdin !== undefined && { stdin, args: args! }),
    ...(isWell && job.stdout !== undefined && { stdout: job.stdout }),
    ...(isWell && job.files && { output: { mark: job.mark } }),
    ...(more as object),
  });
  if (isWell && job.files) {
    const at = { job_id: id, artifact_name: "run.txt" };
    const file = await client.ask("GET /jobs/{job_id}/artifacts/{artifact_name}", { path: at });
    client.check(answer, file.text, (answer.json["output"] as Json)["run"]);
  }
  return answer.json;
}

const withoutNames = (attempts: unknown): Expected =>
  (attempts as Record<string, Expected>[]).map(({ attempt, agent_id, outcome }) => ({
    attempt,
    agent_id,
    outcome,
  }));

/** Remembers a record, which must not change any more; agents that are gone lose their names. */
export function remember(client: Client, id: string, record: Json): void {
  const { attempts, ...lasting } = record;
  client.ended.push({ id, record: { ...lasting, attempts: withoutNames(attempts) } });
  if (client.ended.length > 30) client.ended.shift();
}

/** Submits until it is acknowledged, under one key: a repeat finds the same job. */
export async function submit(
  client: Client,
  job: Job,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const body = { ...job.request, idempotency_key: `key of ${job.mark}` };
  const isTwice = client.random.next() < 0.2;
  for (;;) {
    const sent = Array.from({ length: isTwice ? 2 : 1 }, () =>
      client.ask("POST /execute/async", { body, headers, expect: [200, 202] }),
    );
    const answers = await Promise.allSettled(sent);
    const told = answers.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    const ids = new Set(told.map(({ json }) => (json["job_id"] ?? json["execution_id"]) as string));
    const failure = answers.find((one) => one.status === "rejected")?.reason as unknown;
    if (failure !== undefined && !(failure instanceof LostToFault)) throw failure;
    if (ids.size > 1)
      throw new Violation(`one key, two jobs: ${told.map((one) => one.told).join("; ")}`);
    const [id] = ids;
    if (id !== undefined) {
      client.acknowledge(id, job.ends, job.stdout);
      return id;
    }
    if (client.watch.end.aborted) throw new LostToFault("POST /execute/async given up at the end");
    await sleep(300);
  }
}

/** Waits for the end of a job. */
export async function untilEnded(client: Client, id: string): Promise<void> {
  const query = { wait: true, timeout: 20, view: "full" };
  for (;;) {
    const { status } = await client.ask("GET /jobs/{id}/result", {
      path: { id },
      query,
      expect: [200, 408],
    });
    if (status === 200) return;
  }
}

type Told = { id?: string; event: string; data: Json };
/** Follows a job to its end, now and then over several connections. */
async function follow(client: Client, id: string): Promise<Told[]> {
  const all: Told[] = [];
  const headers = { Accept: "application/x-ndjson" };
  let after = "";
  for (;;) {
    const query: Json = after === "" ? {} : { after };
    const asked = { path: { id }, headers, query: query as Record<string, string> };
    const answer = await client.ask("GET /jobs/{id}/events", asked);
    for (const line of answer.text.split("\n").filter(Boolean)) {
      const event = JSON.parse(line) as Told;
      client.check(answer, id, event.data["job_id"]);
      if (event.event === "retry") all.length = 0;
      else all.push(event);
      after = event.id ?? after;
    }
    if (answer.status === 204 || all.at(-1)?.event === "end") return all;
  }
}
const textOf = (events: readonly Told[], stream: string): string =>
  events
    .filter(({ event }) => event === stream)
    .map(({ data }) => data["text"])
    .join("");

async function readFiles(client: Client, id: string, job: Job): Promise<void> {
  const path = { id };
  const logs = await client.ask("GET /jobs/{id}/logs", { path, query: { stream: "stdout" } });
  if (job.stdout !== undefined) client.check(logs, job.stdout, logs.text);
  const list = await client.ask("GET /jobs/{id}/artifacts", { path });
  const items = list.json["artifacts"] as { name: string }[];
  const names = [...Object.keys(job.files ?? {}), ...(job.files ? ["run.txt"] : [])];
  client.check(list, names.sort(), items.map(({ name }) => name).sort());
  for (const { name } of items) {
    const at = { job_id: id, artifact_name: name };
    const file = await client.ask("GET /jobs/{job_id}/artifacts/{artifact_name}", { path: at });
    if (name !== "run.txt") client.check(file, job.files![name], file.text);
    const headers = { "If-None-Match": file.headers.get("ETag")! };
    const same = { path: at, headers, expect: [304] };
    await client.ask("GET /jobs/{job_id}/artifacts/{artifact_name}", same);
    const head = await client.ask("HEAD /jobs/{job_id}/artifacts/{artifact_name}", { path: at });
    client.check(head, String(Buffer.byteLength(file.text)), head.headers.get("Content-Length"));
  }
  const at = { job_id: id, artifact_name: "_code.py" };
  const code = { path: at, query: { from: "input" } };
  const read = await client.ask("GET /jobs/{job_id}/artifacts/{artifact_name}", code);
  client.check(read, job.request.code, read.text);
}

/** Operations on jobs and batches. */
export const jobOperations: readonly Operation[] = [
  {
    name: "runs code and waits",
    weight: 8,
    async run(client) {
      const job = makeJob(client);
      const answer = await client.ask("POST /execute", { body: job.request });
      const {
        job_id: id,
        success,
        error,
      } = answer.json as { job_id: string; success: boolean; error: Json };
      // Where the API stops meanwhile, the job is cancelled.
      const isStopped = !client.watch.isCalm && error?.["type"] === "cancelled";
      client.acknowledge(
        id,
        [...job.ends, ...(isStopped ? ["cancelled/cancelled"] : [])],
        job.stdout,
      );
      if (isStopped) throw new LostToFault("a job was cancelled by the end of its API");
      if (success) client.check(answer, { stdout: job.stdout, exit_code: 0 });
      remember(client, id, await checkRecord(client, id, job));
    },
  },
  {
    name: "submits code, and follows it to its end",
    weight: 6,
    async run(client) {
      const job = makeJob(client);
      const id = await submit(client, job);
      const other = { ...job.request, code: "2", idempotency_key: `key of ${job.mark}` };
      const refused = await client.ask("POST /execute/async", { body: other, expect: [409] });
      client.check(refused, { existing_job_id: id });
      const status = await client.ask("GET /jobs/{id}", { path: { id } });
      client.check(status, { job_id: id });
      const events = await follow(client, id);
      const record = await checkRecord(client, id, job);
      const answer = await client.ask("GET /jobs/{id}/result", { path: { id } });
      client.check(answer, record["stdout"] as string, textOf(events, "stdout"));
      client.check(answer, {
        status: record["status"] as string,
        stdout: record["stdout"] as string,
      });
      if (record["status"] === "succeeded") await readFiles(client, id, job);
      remember(client, id, record);
    },
  },
  {
    name: "submits code, waits with Prefer, and reads its files",
    weight: 3,
    async run(client) {
      const job = makeJob(client, kinds[1]);
      const id = await submit(client, job, { Prefer: "wait=5" });
      await untilEnded(client, id);
      remember(client, id, await checkRecord(client, id, job));
      await readFiles(client, id, job);
    },
  },
  {
    name: "reads a record again",
    weight: 10,
    isPossible: ({ ended }) => ended.length > 0,
    async run(client) {
      const { id, record } = client.random.pick(client.ended);
      const path = { id };
      const answer = await client.ask("GET /executions/{id}", { path, query: { view: "all" } });
      client.check(answer, record as Expected);
      const mark = (record["metadata"] as Json)["mark"] as string;
      const query = { metadata: `mark:${mark}`, view: "full" };
      const list = await client.ask("GET /executions", { query });
      client.check(list, {
        count: (n: number) => n > 0,
        items: (items: Json[]) => items.some((one) => one["execution_id"] === id),
      });
    },
  },
  {
    name: "runs a job again, and other code on its input",
    weight: 3,
    async run(client) {
      const job = printJob(client);
      const parent = await submit(client, job);
      const again = await client.ask("POST /jobs/{id}/rerun", { path: { id: parent }, body: {} });
      const code = `# fork of ${job.mark}\n${print}`;
      const fork = await client.ask("POST /jobs/{id}/fork", {
        path: { id: parent },
        body: { code },
      });
      for (const [answer, relationship, own] of [
        [again, "rerun", job],
        [fork, "fork", { ...job, request: { ...job.request, code } }],
      ] as const) {
        const id = answer.json["job_id"] as string;
        client.check(answer, { parent_execution_id: parent, relationship });
        client.acknowledge(id, own.ends, own.stdout);
        await untilEnded(client, id);
        const lineage = { parent_execution_id: parent, relationship };
        remember(client, id, await checkRecord(client, id, own, lineage));
      }
    },
  },
  {
    name: "cancels a job",
    weight: 3,
    async run(client) {
      const job = longJob(client);
      const id = await submit(client, job);
      await sleep(client.random.between(0, 1000));
      await client.ask("POST /jobs/{id}/cancel", { path: { id } });
      await client.ask("POST /jobs/{id}/cancel", { path: { id } });
      await untilEnded(client, id);
      const ends = client.watch.isCalm ? ["cancelled/cancelled"] : job.ends;
      remember(client, id, await checkRecord(client, id, { ...job, ends }));
    },
  },
  {
    name: "submits a batch, and cancels some",
    weight: 2,
    async run(client) {
      const jobs = [printJob(client), makeJob(client), printJob(client)];
      const key = `key of batch ${client.mark()}`;
      const body = { jobs: jobs.map(({ request }) => request), idempotency_key: key };
      const answer = await client.ask("POST /execute/batch", { body });
      const again = await client.ask("POST /execute/batch", { body });
      const members = answer.json["jobs"] as { job_id: string }[];
      const same = members.map(({ job_id }) => ({ job_id }));
      client.check(again, { batch_id: answer.json["batch_id"] as string, jobs: same });
      const isCancelled = client.random.next() < 0.4;
      const ends = isCancelled ? ["cancelled/cancelled"] : [];
      const all = jobs.map((job, n) => ({
        ...job,
        id: members[n]!.job_id,
        ends: [...job.ends, ...ends],
      }));
      for (const { id, ends: expected, stdout } of all) client.acknowledge(id, expected, stdout);
      const path = { id: answer.json["batch_id"] as string };
      if (isCancelled) await client.ask("POST /batches/{id}/cancel", { path });
      for (const { id } of all) await untilEnded(client, id);
      for (const { id, ...job } of all)
        remember(client, id, await checkRecord(client, id, job, { batch_id: path.id }));
      const batch = await client.ask("GET /batches/{id}", { path });
      client.check(batch, { total: 3, finished: true });
      const late = await client.ask("POST /batches/{id}/cancel", { path });
      client.check(late, batch.json as Expected);
      const list = await client.ask("GET /executions", { query: { batch_id: path.id } });
      const shown = (list.json["items"] as Json[]).map((one) => one["execution_id"] as string);
      client.check(list, all.map(({ id }) => id).toSorted(), shown.toSorted());
    },
  },
  {
    name: "removes a record",
    weight: 2,
    async run(client) {
      const job = makeJob(client);
      const id = await submit(client, job);
      await untilEnded(client, id);
      await checkRecord(client, id, job);
      // From here on its row may be gone.
      client.watch.acknowledged.delete(id);
      const path = { id };
      await client.ask("DELETE /executions/{id}", { path });
      for (const endpoint of [
        "GET /executions/{id}",
        "GET /jobs/{id}",
        "GET /jobs/{id}/artifacts",
      ]) {
        await client.ask(endpoint, { path, expect: [404] });
      }
    },
  },
  {
    name: "finds a failed job among the dead letters, and removes that",
    weight: 2,
    async run(client) {
      const job = makeJob(client, kinds[3]);
      const id = await submit(client, job);
      await untilEnded(client, id);
      remember(client, id, await checkRecord(client, id, job));
      type Letter = { id: number; job_id: string; job_data: Json };
      let letter: Letter | undefined;
      for (let before = ""; letter === undefined;) {
        const query = { error_type: "value_error", limit: 50, ...(before !== "" && { before }) };
        const page = await client.ask("GET /dlq", { query });
        const items = page.json["items"] as Letter[];
        letter = items.find((one) => one.job_id === id);
        if (letter)
          client.check(
            page,
            { code: job.request.code, input_data: { mark: job.mark } },
            letter.job_data,
          );
        else client.check(page, true, page.json["has_more"]);
        before = String(items.at(-1)?.id);
      }
      const stats = await client.ask("GET /dlq/stats");
      client.check(stats, { by_error_type: { value_error: (n: number) => n > 0 } });
      client.watch.lettersRemoved.add(id);
      const path = { id: String(letter.id) };
      await client.ask("DELETE /dlq/{id}", { path });
      await client.ask("DELETE /dlq/{id}", { path, expect: [404] });
    },
  },
  {
    name: "lets code call a function of its own",
    weight: 3,
    async run(client) {
      const mark = client.mark();
      const code = `print(ask_caller(question="question of ${mark}"))`;
      const tools = [{ name: "ask_caller", parameters: { properties: { question: {} } } }];
      const body = { code, tools, metadata: { mark }, startup_timeout: 300, idempotency_key: mark };
      // Its call would hold a slot for tool_timeout if its client did not insist.
      const submitted = await client.insist("POST /execute/async", { body });
      const id = (submitted.json["job_id"] ?? submitted.json["execution_id"]) as string;
      const stdout = `answer to ${mark}\n`;
      // Code with tools starts once.
      client.acknowledge(id, ["succeeded", ...(client.watch.isCalm ? [] : ofFaults)], stdout);
      for (;;) {
        const waiting = { path: { id }, query: { wait: 20 } };
        const told = await client.insist("GET /jobs/{id}/tool-calls", waiting);
        const [call] = told.json["calls"] as { number: number; arguments: Json }[];
        if (call === undefined) {
          const { status } = told.json as { status: string };
          const isLost = !client.watch.isCalm && status === "failed";
          if (isLost) throw new LostToFault("a job with tools failed");
          client.check(told, true, ["queued", "running"].includes(status));
          continue;
        }
        client.check(told, { question: `question of ${mark}` }, call.arguments);
        const path = { id, number: String(call.number) };
        const expect = client.watch.isCalm ? {} : { expect: [200, 409] };
        const answer = { path, body: { result: `answer to ${mark}` }, ...expect };
        await client.insist("POST /jobs/{id}/tool-calls/{number}", answer);
        break;
      }
      await untilEnded(client, id);
      const job = { mark, request: { code }, ends: ["succeeded"], stdout };
      remember(client, id, await checkRecord(client, id, job));
    },
  },
  {
    name: "hangs up while code runs, or while it is followed or uploaded",
    weight: 4,
    async run(client) {
      const afterMs = Math.round(client.random.between(1, 600));
      const { request } = longJob(client);
      const choice = client.random.next();
      if (choice < 0.5) return client.hangUp("POST /execute", { body: request }, afterMs);
      if (choice < 0.75) {
        const job = makeJob(client);
        const id = await submit(client, job);
        await client.hangUp("GET /jobs/{id}/events", { path: { id } }, afterMs);
        await untilEnded(client, id);
        return checkRecord(client, id, job);
      }
      const name = `cut of ${client.mark()}`;
      const body = new ReadableStream({
        async pull(stream) {
          await sleep(20);
          stream.enqueue(new TextEncoder().encode(name));
        },
      });
      const end = AbortSignal.timeout(afterMs);
      await fetch(`${client.watch.urls[0]}/files?name=${encodeURIComponent(name)}`, {
        method: "POST",
        headers: { "X-API-Key": client.tenant.key },
        body,
        duplex: "half",
        signal: end,
      }).catch(() => {});
      const list = await client.ask("GET /files", { query: { limit: 1000 } });
      client.check(
        list,
        false,
        (list.json["items"] as Json[]).some((one) => one["name"] === name),
      );
    },
  },
  {
    name: "sends a file, and runs code on it",
    weight: 4,
    async run(client) {
      const mark = client.mark();
      const [name, content] = [`name of ${mark}.txt`, `content of ${mark}`];
      const headers = { "Idempotency-Key": `upload of ${mark}` };
      const upload = { query: { name }, body: content, headers };
      const sent = await client.ask("POST /files", upload);
      const id = sent.json["file_id"] as string;
      const again = await client.ask("POST /files", upload);
      client.check(again, { file_id: id });
      const path = { id };
      const file = await client.ask("GET /files/{id}", { path });
      client.check(file, content, file.text);
      const part = await client.ask("GET /files/{id}", {
        path,
        headers: { Range: "bytes=0-6" },
        expect: [206],
      });
      client.check(part, "content", part.text);
      await client.ask("HEAD /files/{id}", { path });
      const list = await client.ask("GET /files", { query: { limit: 1000 } });
      client.check(list, {
        items: (all: Json[]) => all.some((one) => one["file_id"] === id && one["name"] === name),
      });
      const code = 'print(open("/input/given.txt").read())';
      const files = [{ name: "given.txt", file_id: id }];
      const job: Job = {
        mark,
        request: { code, files, metadata: { mark }, startup_timeout: 300 },
        ends: ["succeeded"],
        stdout: `${content}\n`,
      };
      const job_id = await submit(client, job);
      await client.ask("DELETE /files/{id}", { path });
      await client.ask("GET /files/{id}", { path, expect: [404] });
      await untilEnded(client, job_id);
      remember(client, job_id, await checkRecord(client, job_id, job));
    },
  },
  {
    name: "asks for what another tenant has",
    weight: 6,
    isPossible: ({ watch }) => watch.owners.size > 20,
    async run(client) {
      const foreign = [...client.watch.owners].filter(([, owner]) => owner !== client.tenant);
      const [id] = client.random.pick([...foreign, [newId()] as const]);
      const endpoint = client.random.pick([
        "GET /jobs/{id}",
        "GET /jobs/{id}/result",
        "GET /jobs/{id}/events",
        "GET /jobs/{id}/logs",
        "GET /jobs/{id}/artifacts",
        "GET /jobs/{id}/tool-calls",
        "POST /jobs/{id}/cancel",
        "POST /jobs/{id}/rerun",
        "GET /executions/{id}",
        "DELETE /executions/{id}",
        "GET /batches/{id}",
        "POST /batches/{id}/cancel",
        "GET /files/{id}",
        "DELETE /files/{id}",
        "GET /sessions/{id}",
        "PATCH /sessions/{id}",
        "DELETE /sessions/{id}",
        "POST /sessions/{id}/execute",
        "POST /sessions/{id}/interrupt",
        "POST /sessions/{id}/contexts",
        "GET /sessions/{id}/contexts",
        "GET /sessions/{id}/files",
      ]);
      const body = /PATCH|execute$/.test(endpoint)
        ? { body: endpoint.startsWith("PATCH") ? {} : { code: "1" } }
        : {};
      const query = endpoint.endsWith("/logs") ? { query: { stream: "stdout" } } : {};
      await client.ask(endpoint, { path: { id }, ...body, ...query, expect: [404] });
    },
  },
];
