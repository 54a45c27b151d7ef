import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type Received, receiverSecret, startReceiver } from "../../api/testing/receiver.ts";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { startNode } from "../../api/testing/start-node.ts";
import { type Cut, startCuttingProxy } from "../../scripts/testing/proxies.ts";
import { listen } from "../../shared/testing/http.ts";

/** Of an operator, who may do everything. */
export const operatorKey = "operator-0123456789";

export const agentToken = "agent-token-0123456789";

/** A service that asks for keys. */
export const startTenantService = () =>
  startNode({
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_OPERATOR_KEYS: operatorKey,
    AIRLOCK_AGENT_TOKENS: agentToken,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  });

/** Larger than any buffer between the client and the disk. */
export const uploadBytes = 8 * 1024 * 1024;

/** Before the head, in it, in the body, before its last byte, before the answer, in the answer. */
export const uploadCuts: readonly Cut[] = [
  ...[1, 60, 1_000, 70_000, uploadBytes / 2, uploadBytes - 1, uploadBytes + 100].map((request) => ({
    request,
  })),
  ...[0, 1, 40, 300, 600].map((answer) => ({ answer })),
];

/** A real API behind a proxy that breaks connections. */
export async function startUploadService() {
  const api = await startNode({
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_MAX_FILE_BYTES: String(uploadBytes),
  });
  const proxy = await startCuttingProxy(api.url);
  return {
    proxy,
    /** Names, sizes and hashes of the files that it has, in the order of their names. */
    async files(): Promise<string[]> {
      const answer = await fetch(`${api.url}/files?limit=1000`);
      type File = { name: string; size_bytes: number; sha256: string };
      const { items } = (await answer.json()) as { items: File[] };
      return items.map(({ name, size_bytes, sha256 }) => `${name} ${size_bytes} ${sha256}`).sort();
    },
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await api.close();
    },
  };
}

type Event = { id?: string; event: string; data: Record<string, unknown> };

interface EventService extends AsyncDisposable {
  readonly url: string;
  readonly events: readonly Event[];
  /** How many times it was asked. */
  readonly asked: () => number;
}

/**
 * What a job's events look like on the wire, cheaper than a real job at each point of a break.
 *
 * @param perAnswer After so many events an answer ends, as it may before `end`.
 */
export async function startEventService(perAnswer = Infinity): Promise<EventService> {
  const events = eventsOfJob();
  let asked = 0;
  function answer(request: IncomingMessage, response: ServerResponse): void {
    asked++;
    const { searchParams } = new URL(request.url!, "http://x");
    const after = searchParams.get("after");
    const from = after === null ? 0 : events.findIndex(({ id }) => id === after) + 1;
    if (from === events.length) return void response.writeHead(204).end();
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    for (const event of events.slice(from, from + perAnswer)) {
      response.write(`${JSON.stringify(event)}\n\n`);
    }
    response.end();
  }
  return { ...(await listen(createServer(answer))), events, asked: () => asked };
}

function eventsOfJob(): Event[] {
  const common = { job_id: "j", attempt: 1, at: "2026-11-22T00:00:00.000Z" };
  const texts = ["one\n", "zwei – ü\n", "three\n", "4\n"];
  return [
    { event: "status", data: { ...common, status: "queued" } },
    { id: "c/0+", event: "status", data: { ...common, status: "running" } },
    ...texts.map((text, n) => ({
      id: `c/${n + 1}+`,
      event: n === 2 ? "stderr" : "stdout",
      data: { ...common, text },
    })),
    { id: "c/end", event: "end", data: { ...common, execution_id: "j", status: "succeeded" } },
  ];
}

export const otherSecret = `whsec_${Buffer.alloc(32, 8).toString("base64")}`;
export const wrongSecret = `whsec_${Buffer.alloc(32, 9).toString("base64")}`;

/** What the service sends to an endpoint with these secrets, verified by the reference library with one of them. */
export async function receiveDelivery(secrets = [receiverSecret]): Promise<Received> {
  const receiver = await startReceiver();
  const token = "agent-token-0123456789";
  const api = await startNode({
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({ main: { url: receiver.url, secrets } }),
    AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
  });
  try {
    const agent = new ScriptedAgent(api.url, token);
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ code: "print(1)", metadata: { order: "ü – 4711" } });
    await fetch(`${api.url}/execute/async`, { method: "POST", headers, body });
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id, { status: "succeeded", exit_code: 0 });
    return (await receiver.calls(1))[0]!;
  } finally {
    await api.close();
    await receiver.close();
  }
}

/** What `Array.fromAsync` does, which the types of es2023 lack. */
export async function allOf<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}
