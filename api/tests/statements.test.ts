import { beforeEach, expect, test } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";
import {
  type PollReply,
  type PollRequest,
  type ResultReply,
  takeHeader,
} from "../../shared/wire/leases.ts";
import { createApp } from "../app.ts";
import type { Deps, Notifier } from "../deps.ts";
import { readyReport, ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { asked, countStatements } from "../testing/statements.ts";
import { testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";

const token = "a-token-of-16-characters";
/** The clock stands still, so nothing is due by time. */
const now = Date.now();
const hello = { code: 'print("hello")' };

/** What they run a hello with, and how many statements that is. */
const facades = {
  piston: [
    12,
    "api/v2/execute",
    { language: "python", version: "*", files: [{ content: hello.code }] },
  ],
  dify: [12, "v1/sandbox/run", { language: "python3", code: hello.code }],
  librechat: [14, "exec", { lang: "py", code: hello.code }],
  "sandbox-fusion": [12, "run_code", { language: "python", code: hello.code }],
} satisfies Partial<Record<Facade, [number, string, object]>>;
type Facade = Deps["config"]["compat"][number];

countStatements();
useStore();
let deps: Deps;
let app: ReturnType<typeof createApp>;
let agent: ScriptedAgent;
let waits: Record<"agent" | "client", PromiseWithResolvers<void>>;

beforeEach(async () => {
  // One that nobody asks for. What needs no build pays nothing for it.
  const job_types = { unbuilt: JobTypeDefinition.parse({ requirements: ["numpy"] }) };
  const config = { agent_tokens: [token], job_types, compat: Object.keys(facades) as Facade[] };
  deps = testDeps(store.db, store.folder, () => now, config);
  waits = newWaits();
  app = createApp({ ...deps, notifier: telling(deps.notifier) });
  agent = new ScriptedAgent("http://unused", token);
  // The agent's status and the tenant's limits are known from now on.
  await poll();
  await send("GET", "/job-types");
});

const newWaits = (): typeof waits => ({
  agent: Promise.withResolvers(),
  client: Promise.withResolvers(),
});

/** Resolves `waits` when an agent or a client waits to be notified. */
function telling(notifier: Notifier): Notifier {
  return {
    ...notifier,
    subscribe(topics) {
      const subscription = notifier.subscribe(topics);
      const next: typeof subscription.next = (_timeoutMs, signal) => {
        waits[topics.includes("job") ? "agent" : "client"].resolve();
        // However slow the machine is.
        return subscription.next(60_000, signal);
      };
      return { ...subscription, next };
    },
  };
}

async function send<T>(method: string, path: string, body?: object, more = {}): Promise<T> {
  const headers = { Authorization: `Bearer ${token}`, ...more };
  const answer = await app.request(path, jsonRequest(method, body, headers));
  expect(answer.status).toBeLessThan(300);
  return (await answer.json()) as T;
}

const poll = (changes: Partial<PollRequest> = {}): Promise<PollReply> =>
  send(
    "POST",
    "/agent/v1/poll",
    agent.pollRequest({ images: [deps.config.base_image], ...changes }),
  );
const post = <T>(lease: string, what: string, report: object, headers = {}): Promise<T> =>
  send("POST", `/agent/v1/leases/${lease}/${what}`, report, headers);

const mostLooks = 7;

type Step = [name: string, statements: number, run: () => Promise<unknown>];

/** Runs steps in turn. Empty if each asked as often as before, else what each asked. */
async function differences(steps: Step[]): Promise<string> {
  const table: string[] = [];
  const texts: string[] = [];
  for (const [name, before, run] of steps) {
    asked.length = 0;
    await run();
    // Whether another process has written is asked once in a turn of the event loop: how many there are may vary.
    const own = asked.filter((text) => text !== "PRAGMA data_version");
    const isSame = own.length === before && asked.length - own.length <= mostLooks;
    table.push(`${name.padEnd(30)}${own.length}${isSame ? "" : `, was ${before}`}`);
    if (!isSame) texts.push(`${name}:`, ...asked.map((text) => `  ${inOneLine(text)}`));
  }
  return texts.length === 0 ? "" : ["statements", ...table, ...texts].join("\n");
}

const inOneLine = (text: string): string =>
  text
    .replaceAll(/\s+/g, " ")
    .trim()
    .replace(/^select .*? from/, "select … from")
    .slice(0, 100);

test("each step of a job runs as many statements on the database file as this says", async () => {
  let id = "";
  let lease = "";
  const warmer = { warm: 2 };
  const submit = async (): Promise<void> => {
    ({ job_id: id } = await send<{ job_id: string }>("POST", "/execute/async", hello));
  };
  const take = async (): Promise<void> => {
    lease = (await poll(warmer)).jobs[0]!.lease_id;
  };
  const steps: Step[] = [
    ["a poll that finds nothing", 1, () => poll()],
    ["a poll with a new status", 1, () => poll(warmer)],
    ["a submission", 5, submit],
    ["a poll that takes the job", 5, take],
    ["code has started", 2, () => post(lease, "started", { job_ref: null })],
    ["a result", 5, () => post(lease, "result", success)],
    ["GET /jobs/{id}", 1, () => send("GET", `/jobs/${id}`)],
    ["GET /jobs/{id}/result", 3, () => send("GET", `/jobs/${id}/result`)],
  ];
  expect(await differences(steps)).toBe("");
});

test("a hello runs as many statements on the database file as this says, from a waiting poll to the answer", async () => {
  const run = async (path: string, body?: object): Promise<void> => {
    waits = newWaits();
    const polled = poll({ wait_s: 10 });
    await waits.agent.promise;
    const answer = send(body ? "POST" : "GET", path, body);
    const { jobs } = await polled;
    await waits.client.promise;
    await post(jobs[0]!.lease_id, "result", { ...success, stdout_base64: btoa("python 3.12") });
    expect(JSON.stringify(await answer)).toContain("python");
  };
  const steps = Object.entries(facades).map(([name, [count, path, body]]): Step => [
    name,
    count,
    () => run(`/compat/${name}/${path}`, body),
  ]);
  steps.push(["a hello", 12, () => run("/execute", hello)]);
  await run("/compat/piston/api/v2/runtimes");
  // On a busy machine, a turn of the event loop may be too long for the claim to come into the submission's group.
  for (const step of steps) {
    let different = await differences([step]);
    for (let tries = 10; different !== "" && tries > 0; tries--)
      different = await differences([step]);
    expect(different).toBe("");
  }
});

test("a session and its calls ask the database file as often as they did, with a poll that waits", async () => {
  const holder = { free_sessions: 1, sessions: [] as string[] };
  let id = "";
  let lease = "";
  let ended: Promise<ResultReply>;
  const create = async (): Promise<void> => {
    const polled = poll({ ...holder, wait_s: 10 });
    await waits.agent.promise;
    const answer = send<{ session_id: string }>("POST", "/sessions", {});
    const { sessions = [] } = await polled;
    await waits.client.promise;
    holder.sessions = sessions.map(({ lease_id }) => lease_id);
    await send("POST", `/agent/v1/sessions/${holder.sessions[0]}/ready`, readyReport);
    ({ session_id: id } = await answer);
  };
  const execute = () => send("POST", `/sessions/${id}/execute`, hello);
  const call = async (): Promise<void> => {
    waits = newWaits();
    const polled = poll({ ...holder, free_sessions: 0, wait_s: 10 });
    await waits.agent.promise;
    const answer = execute();
    lease = (await polled).jobs[0]!.lease_id;
    await waits.client.promise;
    waits = newWaits();
    ended = post(lease, "result", success, { [takeHeader]: "1" });
    expect(await answer).toMatchObject({ success: true });
  };
  const next = async (): Promise<void> => {
    await waits.client.promise;
    waits = newWaits();
    const answer = execute();
    const { jobs } = await ended;
    await waits.client.promise;
    await post(jobs[0]!.lease_id, "result", success);
    expect(await answer).toMatchObject({ success: true });
  };
  const steps: Step[] = [
    ["a session until it is ready", 17, create],
    ["a call that a poll brings", 23, call],
    ["a call that a result brings", 17, next],
  ];
  expect(await differences(steps)).toBe("");
});
