import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Answer,
  at,
  type Client,
  type Expected,
  isDraining,
  type Json,
  LostToFault,
  newId,
  type Operation,
  type Place,
  some,
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

function makeJob(client: Client, kind: Kind = client.random.weighted(kinds)): Job {
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
  const isLost = !ends.includes(end) && [...ofFaults, ...more].includes(end);
  client.loseIf(isLost, `a job ended as ${end}`);
  client.check(answer, (is: string) => ends.includes(is), end);
}

/** Waits for the end of a job. */
export async function untilEnded(client: Client, id: string): Promise<void> {
  const end = at`GET /jobs/${id}/result?wait=true&timeout=20&view=full`;
  while ((await client.ask(end, { expect: [200, 408] })).status !== 200);
}

const artifact = (id: string, name: string): Place => at`GET /jobs/${id}/artifacts/${name}`;

/**
 * Waits for the end of a job, and checks its record and everything else that the service has of it. The record must not
 * change any more: it is remembered.
 */
export async function checkEnded(
  client: Client,
  id: string,
  job: Job,
  more: Expected = {},
): Promise<Json> {
  await untilEnded(client, id);
  const answer = await client.ask(at`GET /executions/${id}?view=all`);
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
    const { text } = await client.ask(artifact(id, "run.txt"));
    client.check(answer, text, (answer.json["output"] as Json)["run"]);
  }
  remember(client, id, answer.json);
  return answer.json;
}

/** Agents that are gone lose their names. */
function remember(client: Client, id: string, { attempts, ...lasting }: Json): void {
  const nameless = (attempts as Record<string, Expected>[]).map(
    ({ attempt, agent_id, outcome }) => ({ attempt, agent_id, outcome }),
  );
  client.ended.push({ id, record: { ...lasting, attempts: nameless } });
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
      client.ask(at`POST /execute/async`, { body, headers, expect: [200, 202] }),
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

type Told = { id?: string; event: string; data: Json };
/** Follows a job to its end, now and then over several connections. */
async function follow(client: Client, id: string): Promise<Told[]> {
  const all: Told[] = [];
  const headers = { Accept: "application/x-ndjson" };
  let after = "";
  for (;;) {
    const events =
      after === "" ? at`GET /jobs/${id}/events` : at`GET /jobs/${id}/events?after=${after}`;
    const answer = await client.ask(events, { headers });
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

async function readFiles(
  client: Client,
  id: string,
  { stdout, files, request }: Job,
): Promise<void> {
  await client.ask(
    at`GET /jobs/${id}/logs?stream=stdout`,
    stdout === undefined ? {} : { text: stdout },
  );
  const list = await client.ask(at`GET /jobs/${id}/artifacts`);
  const names = (list.json["artifacts"] as { name: string }[]).map(({ name }) => name);
  client.check(list, files ? [...Object.keys(files), "run.txt"].sort() : [], names.toSorted());
  for (const name of names) {
    const file = await client.ask(artifact(id, name));
    if (name !== "run.txt") client.check(file, files![name], file.text);
    const headers = { "If-None-Match": file.headers.get("ETag")! };
    await client.ask(artifact(id, name), { headers, expect: [304] });
    const head = await client.ask(at`HEAD /jobs/${id}/artifacts/${name}`);
    client.check(head, String(Buffer.byteLength(file.text)), head.headers.get("Content-Length"));
  }
  await client.ask(at`GET /jobs/${id}/artifacts/_code.py?from=input`, { text: request.code });
}

/** What a client may ask for by the id of something that another tenant has. */
const ofOthers = [
  "GET /jobs/{}",
  "GET /jobs/{}/result",
  "GET /jobs/{}/events",
  "GET /jobs/{}/logs?stream=stdout",
  "GET /jobs/{}/artifacts",
  "GET /jobs/{}/tool-calls",
  "POST /jobs/{}/cancel",
  "POST /jobs/{}/rerun",
  "GET /executions/{}",
  "DELETE /executions/{}",
  "GET /batches/{}",
  "POST /batches/{}/cancel",
  "GET /files/{}",
  "DELETE /files/{}",
  "GET /sessions/{}",
  "PATCH /sessions/{}",
  "DELETE /sessions/{}",
  "POST /sessions/{}/execute",
  "POST /sessions/{}/interrupt",
  "POST /sessions/{}/contexts",
  "GET /sessions/{}/contexts",
  "GET /sessions/{}/files",
];

/** Operations on jobs and batches. */
export const jobOperations: readonly Operation[] = [
  {
    name: "runs code and waits",
    weight: 8,
    async run(client) {
      const job = makeJob(client);
      const answer = await client.ask(at`POST /execute`, { body: job.request });
      type Result = { job_id: string; success: boolean; error: Json };
      const { job_id: id, success, error } = answer.json as Result;
      // Where the API stops meanwhile, the job is cancelled.
      const isStopped = !client.watch.isCalm && error?.["type"] === "cancelled";
      const ends = isStopped ? [...job.ends, "cancelled/cancelled"] : job.ends;
      client.acknowledge(id, ends, job.stdout);
      client.loseIf(isStopped, "a job was cancelled by the end of its API");
      if (success) client.check(answer, { stdout: job.stdout, exit_code: 0 });
      await checkEnded(client, id, job);
    },
  },
  {
    name: "submits code, and follows it to its end",
    weight: 6,
    async run(client) {
      const job = makeJob(client);
      const id = await submit(client, job);
      const other = { ...job.request, code: "2", idempotency_key: `key of ${job.mark}` };
      const refused = await client.ask(at`POST /execute/async`, { body: other, expect: [409] });
      client.check(refused, { existing_job_id: id });
      client.check(await client.ask(at`GET /jobs/${id}`), { job_id: id });
      const events = await follow(client, id);
      const { status, stdout } = (await checkEnded(client, id, job)) as Record<string, string>;
      const answer = await client.ask(at`GET /jobs/${id}/result`);
      client.check(answer, stdout, textOf(events, "stdout"));
      client.check(answer, { status, stdout });
      if (status === "succeeded") await readFiles(client, id, job);
    },
  },
  {
    name: "submits code, waits with Prefer, and reads its files",
    weight: 3,
    async run(client) {
      const job = makeJob(client, kinds[1]);
      const id = await submit(client, job, { Prefer: "wait=5" });
      await checkEnded(client, id, job);
      await readFiles(client, id, job);
    },
  },
  {
    name: "reads a record again",
    weight: 10,
    isPossible: ({ ended }) => ended.length > 0,
    async run(client) {
      const { id, record } = client.random.pick(client.ended);
      client.check(await client.ask(at`GET /executions/${id}?view=all`), record as Expected);
      const mark = (record["metadata"] as Json)["mark"] as string;
      client.check(await client.ask(at`GET /executions?metadata=${`mark:${mark}`}&view=full`), {
        count: (n: number) => n > 0,
        items: some({ execution_id: id }),
      });
    },
  },
  {
    name: "runs a job again, and other code on its input",
    weight: 3,
    async run(client) {
      const job = printJob(client);
      const parent = await submit(client, job);
      const code = `# fork of ${job.mark}\n${print}`;
      const again = await client.ask(at`POST /jobs/${parent}/rerun`, { body: {} });
      const fork = await client.ask(at`POST /jobs/${parent}/fork`, { body: { code } });
      for (const [answer, relationship, own] of [
        [again, "rerun", job],
        [fork, "fork", { ...job, request: { ...job.request, code } }],
      ] as const) {
        const id = answer.json["job_id"] as string;
        const lineage = { parent_execution_id: parent, relationship };
        client.check(answer, lineage);
        client.acknowledge(id, own.ends, own.stdout);
        await checkEnded(client, id, own, lineage);
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
      for (const _ of [1, 2]) await client.ask(at`POST /jobs/${id}/cancel`);
      const ends = client.watch.isCalm ? ["cancelled/cancelled"] : job.ends;
      await checkEnded(client, id, { ...job, ends });
    },
  },
  {
    name: "submits a batch, and cancels some",
    weight: 2,
    async run(client) {
      const jobs = [printJob(client), makeJob(client), printJob(client)];
      const key = `key of batch ${client.mark()}`;
      const body = { jobs: jobs.map(({ request }) => request), idempotency_key: key };
      const answer = await client.ask(at`POST /execute/batch`, { body });
      const again = await client.ask(at`POST /execute/batch`, { body });
      const batch_id = answer.json["batch_id"] as string;
      const ids = (answer.json["jobs"] as { job_id: string }[]).map(({ job_id }) => job_id);
      // Each job of a batch is accepted or refused by itself.
      client.loseIf(!ids.every(Boolean), "a job of a batch");
      if (isDraining(answer)) throw new LostToFault("a job of a batch");
      client.check(again, { batch_id, jobs: ids.map((job_id) => ({ job_id })) });
      const isCancelled = client.random.next() < 0.4;
      const more = isCancelled ? ["cancelled/cancelled"] : [];
      const all = jobs.map((job) => ({ ...job, ends: [...job.ends, ...more] }));
      all.forEach(({ ends, stdout }, n) => client.acknowledge(ids[n]!, ends, stdout));
      if (isCancelled) await client.ask(at`POST /batches/${batch_id}/cancel`);
      for (const [n, job] of all.entries()) await checkEnded(client, ids[n]!, job, { batch_id });
      const batch = await client.ask(at`GET /batches/${batch_id}`);
      client.check(batch, { total: 3, finished: true });
      client.check(await client.ask(at`POST /batches/${batch_id}/cancel`), batch.json as Expected);
      const list = await client.ask(at`GET /executions?batch_id=${batch_id}`);
      const shown = (list.json["items"] as Json[]).map((one) => one["execution_id"] as string);
      client.check(list, ids.toSorted(), shown.toSorted());
    },
  },
  {
    name: "removes a record",
    weight: 2,
    async run(client) {
      const job = makeJob(client);
      const id = await submit(client, job);
      await checkEnded(client, id, job);
      client.ended.pop();
      // From here on its row may be gone.
      client.watch.acknowledged.delete(id);
      await client.ask(at`DELETE /executions/${id}`);
      for (const place of [
        at`GET /executions/${id}`,
        at`GET /jobs/${id}`,
        at`GET /jobs/${id}/artifacts`,
      ])
        await client.ask(place, { expect: [404] });
    },
  },
  {
    name: "finds a failed job among the dead letters, and removes that",
    weight: 2,
    async run(client) {
      const job = makeJob(client, kinds[3]);
      const id = await submit(client, job);
      await checkEnded(client, id, job);
      type Letter = { id: number; job_id: string; job_data: Json };
      let letter: Letter | undefined;
      for (let before = ""; letter === undefined;) {
        const from = before === "" ? "" : `&before=${before}`;
        const page = await client.ask(at([`GET /dlq?error_type=value_error&limit=50${from}`]));
        const items = page.json["items"] as Letter[];
        letter = items.find((one) => one.job_id === id);
        const data = { code: job.request.code, input_data: { mark: job.mark } };
        if (letter) client.check(page, data, letter.job_data);
        else client.check(page, true, page.json["has_more"]);
        before = String(items.at(-1)?.id);
      }
      client.check(await client.ask(at`GET /dlq/stats`), {
        by_error_type: { value_error: (n: number) => n > 0 },
      });
      client.watch.lettersRemoved.add(id);
      await client.ask(at`DELETE /dlq/${letter.id}`);
      await client.ask(at`DELETE /dlq/${letter.id}`, { expect: [404] });
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
      const submitted = await client.insist(at`POST /execute/async`, { body });
      const id = (submitted.json["job_id"] ?? submitted.json["execution_id"]) as string;
      const stdout = `answer to ${mark}\n`;
      // Code with tools starts once.
      client.acknowledge(id, ["succeeded", ...(client.watch.isCalm ? [] : ofFaults)], stdout);
      for (;;) {
        const told = await client.insist(at`GET /jobs/${id}/tool-calls?wait=20`);
        const [call] = told.json["calls"] as { number: number; arguments: Json }[];
        if (call === undefined) {
          const { status } = told.json as { status: string };
          client.loseIf(status === "failed", "a job with tools failed");
          client.check(told, true, ["queued", "running"].includes(status));
          continue;
        }
        client.check(told, { question: `question of ${mark}` }, call.arguments);
        const expect = client.watch.isCalm ? {} : { expect: [200, 409] };
        const answer = { body: { result: `answer to ${mark}` }, ...expect };
        await client.insist(at`POST /jobs/${id}/tool-calls/${call.number}`, answer);
        break;
      }
      await checkEnded(client, id, { mark, request: { code }, ends: ["succeeded"], stdout });
    },
  },
  {
    name: "hangs up while code runs, or while it is followed or uploaded",
    weight: 4,
    async run(client) {
      const afterMs = Math.round(client.random.between(1, 600));
      const { request } = longJob(client);
      const choice = client.random.next();
      if (choice < 0.5) return client.hangUp(at`POST /execute`, { body: request }, afterMs);
      if (choice < 0.75) {
        const job = makeJob(client);
        const id = await submit(client, job);
        await client.hangUp(at`GET /jobs/${id}/events`, {}, afterMs);
        return checkEnded(client, id, job);
      }
      const name = `cut of ${client.mark()}`;
      const body = new ReadableStream({
        async pull(stream) {
          await sleep(20);
          stream.enqueue(new TextEncoder().encode(name));
        },
      });
      // More than is sent in this time.
      const headers = { "Content-Length": "1000000" };
      await client.hangUp(at`POST /files?name=${name}`, { body, headers }, afterMs);
      const list = await client.ask(at`GET /files?limit=1000`);
      client.check(list, false, some({ name })(list.json["items"] as Json[]));
    },
  },
  {
    name: "sends a file, and runs code on it",
    weight: 4,
    async run(client) {
      const mark = client.mark();
      const [name, content] = [`name of ${mark}.txt`, `content of ${mark}`];
      const upload = { body: content, headers: { "Idempotency-Key": `upload of ${mark}` } };
      const sent = await client.ask(at`POST /files?name=${name}`, upload);
      const id = sent.json["file_id"] as string;
      client.check(await client.ask(at`POST /files?name=${name}`, upload), { file_id: id });
      const file = at`GET /files/${id}`;
      await client.ask(file, { text: content });
      await client.ask(file, { headers: { Range: "bytes=0-6" }, expect: [206], text: "content" });
      await client.ask(at`HEAD /files/${id}`);
      client.check(await client.ask(at`GET /files?limit=1000`), {
        items: some({ file_id: id, name }),
      });
      const code = 'print(open("/input/given.txt").read())';
      const files = [{ name: "given.txt", file_id: id }];
      const request = { code, files, metadata: { mark }, startup_timeout: 300 };
      const job: Job = { mark, request, ends: ["succeeded"], stdout: `${content}\n` };
      const job_id = await submit(client, job);
      await client.ask(at`DELETE /files/${id}`);
      await client.ask(file, { expect: [404] });
      await checkEnded(client, job_id, job);
    },
  },
  {
    name: "asks for what another tenant has",
    weight: 6,
    isPossible: ({ watch }) => watch.owners.size > 20,
    async run(client) {
      const foreign = [...client.watch.owners].filter(([, owner]) => owner !== client.tenant);
      const [id] = client.random.pick([...foreign, [newId()] as const]);
      const endpoint = client.random.pick(ofOthers);
      const body = endpoint.startsWith("PATCH") ? {} : { code: "1" };
      const hasBody = /PATCH|execute$/.test(endpoint);
      await client.ask(at(endpoint.split("{}"), id), { ...(hasBody && { body }), expect: [404] });
    },
  },
];
