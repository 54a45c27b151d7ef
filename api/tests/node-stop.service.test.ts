import { once } from "node:events";
import { readFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { type NodeProcess, startNodeIn } from "../testing/start-node.ts";

const token = "agent-token-0123456789";

let folder: string;
let api: NodeProcess;
beforeEach(() => {
  folder = tempFolder();
});
afterEach(() => api.close());

async function start(vars: Record<string, string> = {}): Promise<void> {
  api = await startNodeIn(folder, {
    AIRLOCK_STOP_DELAY_S: "0",
    AIRLOCK_DRAIN_GRACE_S: "0",
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_MAX_QUEUE_SIZE: "100000",
    AIRLOCK_POLL_WAIT_S: "60",
    ...vars,
  });
}

const post = (path: string, body: object): Promise<Response> =>
  fetch(api.url + path, jsonRequest("POST", body));

async function submit(): Promise<string> {
  const response = await post("/execute/async", { code: "print(1)" });
  const { job_id } = (await response.json()) as { job_id: string };
  expect(response.status).toBe(202);
  return job_id;
}

/** Resolves when a request has ended in any way. */
const settled = (request: Promise<unknown>): Promise<unknown> => request.catch(() => undefined);

/** A connection that the API has accepted, with a request that was started and never completed. */
async function halfARequest(): Promise<Socket> {
  const { hostname, port } = new URL(api.url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.on("error", () => {});
  socket.write(
    "POST /execute/async HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
  );
  // Connections are accepted in order: this one has been accepted when a later one is answered.
  const later = get(`${api.url}/health`, { agent: false });
  const [answer] = (await once(later, "response")) as [IncomingMessage];
  answer.resume();
  return socket;
}

test.each(["SIGTERM", "SIGINT"] as const)(
  "%s ends it with 0 even if agents poll, clients wait and a request never ends",
  async (signal) => {
    await start();
    const waiting = await submit();
    const agent = new ScriptedAgent(api.url, token);
    await agent.poll();
    const open = [
      new ScriptedAgent(api.url, token).poll({ free_slots: 0, wait_s: 60 }),
      fetch(`${api.url}/jobs/${waiting}/result?wait=true&timeout=3600`),
      post("/execute", { code: "print(1)" }),
    ].map(settled);
    await halfARequest();
    await agent.takeJob();
    api.child.kill(signal);
    expect(await api.exited).toBe(0);
    await Promise.all(open);
    expect(await api.logged).toBe("");
  },
);

test("it ends with 0 when its parent ends", async () => {
  await start();
  api.child.disconnect();
  expect(await api.exited).toBe(0);
});

test("one Ctrl-C that arrives twice, from the terminal and from npm, counts as one", async () => {
  await start();
  await halfARequest();
  api.child.kill("SIGINT");
  while (isSignalPending());
  api.child.kill("SIGINT");
  expect(await api.exited).toBe(0);
});

/** While a signal waits for the process, the kernel drops another one of its number. */
function isSignalPending(): boolean {
  const status = readFileSync(`/proc/${api.child.pid}/status`, "utf8");
  return !/^ShdPnd:\s0+$/m.test(status);
}

test("after SIGTERM under load, every acknowledged job is there at the next start", async () => {
  await start();
  const acknowledged: string[] = [];
  const clients = Array.from({ length: 6 }, async () => {
    for (;;) {
      try {
        acknowledged.push(await submit());
      } catch (error) {
        if (error instanceof TypeError) return;
        throw error;
      }
      if (acknowledged.length === 50) api.child.kill("SIGTERM");
    }
  });
  await Promise.all(clients);
  expect(await api.exited).toBe(0);
  expect(await api.logged).toBe("");
  await start();
  const known = await Promise.all(acknowledged.map((id) => fetch(`${api.url}/jobs/${id}`)));
  expect(known.filter(({ status }) => status !== 200)).toEqual([]);
});

test("after SIGTERM it is not ready, and still serves for stop_delay_s; a second signal ends it at once", async () => {
  await start({ AIRLOCK_STOP_DELAY_S: "3600" });
  const open = settled(new ScriptedAgent(api.url, token).poll({ free_slots: 0, wait_s: 60 }));
  await halfARequest();
  api.child.kill("SIGTERM");
  await waitUntil("it is not ready", async () => {
    const ready = await fetch(`${api.url}/health/ready`);
    return ready.status === 503 && (await ready.text()).includes("The service is stopping.");
  });
  expect((await fetch(`${api.url}/health/live`)).status).toBe(200);
  const agent = new ScriptedAgent(api.url, token);
  await agent.poll();
  const answer = post("/execute", { code: "print(1)" });
  await agent.result((await agent.takeJob()).lease_id);
  expect((await answer).status).toBe(200);
  await submit();
  api.child.kill("SIGINT");
  expect(await api.exited).toBe(130);
  await open;
});

test("after SIGTERM a synchronous job has drain_grace_s: its agent posts the result and its client gets it", async () => {
  await start({ AIRLOCK_DRAIN_GRACE_S: "3600" });
  const agent = new ScriptedAgent(api.url, token);
  await agent.poll();
  const answer = post("/execute", { code: "print('running')" });
  const { lease_id } = await agent.takeJob();
  api.child.kill("SIGTERM");
  await waitUntil("new synchronous requests are refused", async () => {
    const refusal = await post("/execute", { code: "" });
    return (await refusal.text()).includes("The service is stopping.");
  });
  expect((await fetch(`${api.url}/health/live`)).status).toBe(200);
  expect((await agent.result(lease_id)).status).toBe(200);
  expect((await answer).status).toBe(200);
  expect(await api.exited).toBe(0);
  expect(await api.logged).toBe("");
});

test("after SIGTERM, synchronous jobs that have not ended within drain_grace_s are cancelled", async () => {
  await start();
  const agent = new ScriptedAgent(api.url, token);
  await agent.poll();
  const first = settled(post("/execute", { code: "print('running')" }));
  const { execution_id: running } = await agent.takeJob();
  const second = settled(post("/execute", { code: "print('queued')" }));
  const queued = await queuedJob();
  api.child.kill("SIGTERM");
  expect(await api.exited).toBe(0);
  await Promise.all([first, second]);
  await start();
  const job = async (id: string) => (await fetch(`${api.url}/jobs/${id}`)).json();
  expect(await job(queued)).toMatchObject({ status: "cancelled" });
  expect(await job(running)).toMatchObject({ status: "running", cancel_requested: true });
});

async function queuedJob(): Promise<string> {
  for (;;) {
    const response = await fetch(`${api.url}/executions?status=queued`);
    const { items } = (await response.json()) as { items: { execution_id: string }[] };
    if (items[0]) return items[0].execution_id;
  }
}
