import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/wait-until.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body } from "./api.ts";
import { operatorKey } from "./servers.ts";

type Json = Record<string, unknown>;
export type Headers = Record<string, string>;

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
export async function keyOf(api: Api, tenant: string, scopes = all): Promise<Headers> {
  const asked = { name: "a-key", tenant, scopes };
  const reply = await api.post("/keys", asked, { "X-API-Key": operatorKey });
  expect(reply.status).toBe(201);
  return { "X-API-Key": (JSON.parse(reply.text) as { key: string }).key };
}

const json = (reply: Reply): Json => body(reply) as Json;

/** Texts that only the tenant's own answers may have. */
export const secretsOf = (tenant: string): string[] =>
  ["code", "error", "output", "file", "metadata", "artifact"].map((what) => `${what}-of-${tenant}`);

/** @param job_type of its jobs: those of `ml` are taken before all others. */
export async function makeThings(
  api: Api,
  tenant: string,
  key: Headers,
  job_type = "default",
): Promise<Things> {
  const [code, message, output, content, metadata, artifact] = secretsOf(tenant);
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
