// First, as it brings the app, which teaches zod to describe itself.
import { type Cost, startMetered, token } from "./metered-service.ts";
import { readChanges } from "../../api/store/changes.ts";
import { findExecution } from "../../api/store/jobs/read.ts";
import { sweep } from "../../api/upkeep/sweep.ts";
import { ScriptedAgent, sha256, success } from "../../api/testing/scripted-agent.ts";
import { type LeasedJob, takeHeader } from "../../shared/wire/agent/lease.ts";
import { jsonRequest } from "../command/json-request.ts";

export const operations = {
  submit: "submission of an asynchronous job",
  claim: "poll that brings a job",
  started: "report that the code has started, if it runs over 50 ms",
  log: "piece of a running job's output, at most one a second",
  artifact: "upload of an artifact",
  result: "result",
  resultAndTake: "result that brings the next job",
  wait: "client's request for a result",
  look: "second read of such a request, when its job has ended",
  renew: "renewal of 4 leases",
  idlePoll: "poll of 15 s that brings nothing",
  status: "status of a job",
  news: "read of an API process for others' news, while anyone waits",
  sweep: "sweep with nothing to do",
} as const;
export type Operation = keyof typeof operations;
export type Costs = Readonly<Record<Operation, Cost>>;

const times = 20;

/** What each operation takes, asked of the service itself. */
export async function measureOperations(): Promise<Costs> {
  await using service = await startMetered();
  const { app, deps, advance, costOf } = service;
  const scripted = new ScriptedAgent("http://unused", "");
  const agent = scripted.status();
  const images = [deps.config.base_image];
  const leases: string[] = [];

  async function send(
    method: string,
    path: string,
    body?: object | string,
    headers: Record<string, string> = {},
  ): Promise<Record<string, unknown>> {
    const own = path.startsWith("/agent") ? { Authorization: `Bearer ${token}` } : {};
    const reply = await app.request(path, jsonRequest(method, body, { ...own, ...headers }));
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
    return (await reply.json()) as Record<string, unknown>;
  }
  const ids: string[] = [];
  const submit = async () => {
    const body = { code: "print(1)", input_data: { n: 1 } };
    ids.push((await send("POST", "/execute/async", body))["job_id"] as string);
  };
  const poll = async (freeSlots: number, waitS: number) => {
    const asked = scripted.pollRequest({ images, leases, free_slots: freeSlots, wait_s: waitS });
    const { jobs } = (await send("POST", "/agent/v1/poll", asked)) as { jobs: LeasedJob[] };
    leases.push(...jobs.map(({ lease_id }) => lease_id));
  };
  const post = (lease: string, what: string, body: object, headers = {}) =>
    send("POST", `/agent/v1/leases/${lease}/${what}`, body, headers);
  const each = (work: (lease: string, n: number) => Promise<unknown>) => {
    let n = 0;
    return costOf(times, () => work(leases[n]!, n++));
  };
  const hash = await sha256(new TextEncoder().encode("kept"));

  await poll(0, 0);
  await submit();
  const submitted = await costOf(3 * times, submit);
  const claim = await costOf(times, () => poll(1, 15));
  const started = await each((lease) => post(lease, "started", { job_ref: null }));
  const piece = { stream: "stdout", offset: 0, data_base64: btoa("so far\n") };
  const log = await each((lease) => post(lease, "logs", piece));
  const artifact = await each((lease) =>
    send("PUT", `/agent/v1/leases/${lease}/artifacts/a.txt`, "kept", {
      "Content-Length": "4",
      "X-Airlock-SHA256": hash,
    }),
  );
  const status = await costOf(times, () => send("GET", `/jobs/${ids[0]}`));
  const held = leases.slice(0, 4);
  // Together shorter than a lease, which the others have too.
  const renew = await costOf(3, () => {
    advance(8000);
    return send("POST", "/agent/v1/renew", { ...agent, images, leases: held });
  });
  const next = await each((lease) => post(lease, "result", success, { [takeHeader]: "1" }));
  leases.splice(0);
  await poll(times, 0);
  const result = await each((lease) => post(lease, "result", success));
  leases.splice(0);

  const wait = await costOf(times, () => send("GET", `/jobs/${ids[0]}/result?wait=true`));
  const look = await costOf(times, () => findExecution(deps.db, ids[0]!));
  await poll(100, 0);
  for (const lease of leases.splice(0)) await post(lease, "result", success);
  await poll(1, 15);
  const idlePoll = await costOf(times, () => poll(1, 15));
  const awaited = {
    agents: [agent.agent.id],
    executions: ids.slice(0, 4),
    outputs: [],
    builds: [],
  };
  const news = await costOf(times, () => readChanges(deps.db, awaited, deps.now()));
  const swept = await costOf(times, () => sweep(deps));
  return {
    submit: submitted,
    claim,
    started,
    log,
    artifact,
    result,
    resultAndTake: next,
    wait,
    look,
    renew,
    idlePoll,
    status,
    news,
    sweep: swept,
  };
}
