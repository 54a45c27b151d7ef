import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Api } from "../testing/contract/api.ts";
import { agentTokens, servers } from "../testing/contract/servers.ts";
import { type ScriptedAgent, sha256 } from "../testing/scripted-agent.ts";
import { type NodeProcess, startNodeIn } from "../testing/start-node.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

let folder: string;
let service: NodeProcess;
let api: Api;
beforeEach(async () => {
  folder = tempFolder();
  await start();
});
afterEach(() => service.close());

async function start(): Promise<void> {
  service = await startNodeIn(folder, servers.open);
  api = new Api(service.url);
}

const content = "whole".repeat(1000);

/** Opens a connection and sends the first bytes of an upload. */
async function begunUpload(leaseId: string): Promise<Socket> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.on("error", () => {});
  const head = [
    `PUT /agent/v1/leases/${leaseId}/artifacts/a.txt HTTP/1.1`,
    `Host: ${hostname}`,
    `Authorization: Bearer ${agentTokens[0]}`,
    `Content-Length: ${content.length}`,
    `X-Airlock-SHA256: ${await sha256(new TextEncoder().encode(content))}`,
  ];
  socket.write(`${head.join("\r\n")}\r\n\r\n${content.slice(0, 100)}`);
  return socket;
}

/** Ends the lease with another artifact, and checks that only that one is visible. */
async function endWithAnother(agent: ScriptedAgent, leaseId: string, jobId: string): Promise<void> {
  expect((await agent.upload(leaseId, "b.txt", "b")).status).toBe(200);
  expect((await agent.result(leaseId)).status).toBe(200);
  expect((await api.record(jobId)).artifacts).toMatchObject([{ name: "b.txt" }]);
}

test("an upload whose connection dies is never visible", async () => {
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  const socket = await begunUpload(lease_id);
  socket.destroy();
  await endWithAnother(agent, lease_id, job_id);
  expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).status).toBe(404);
});

test("an upload that never ends blocks nothing, and is never visible", async () => {
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  const socket = await begunUpload(lease_id);
  await endWithAnother(agent, lease_id, job_id);
  socket.end(content.slice(100));
  await once(socket.resume(), "close");
  expect((await api.record(job_id)).artifacts).toMatchObject([{ name: "b.txt" }]);
});

test("an upload cut by kill -9 is never visible; repeated after the restart, it is", async () => {
  const { job_id } = await api.submit();
  const before = api.agent();
  const { lease_id } = await before.takeJob();
  await begunUpload(lease_id);
  expect((await before.upload(lease_id, "b.txt", "b")).status).toBe(200);
  await service.close();
  await start();
  const agent = api.agent();
  expect((await agent.upload(lease_id, "a.txt", content)).status).toBe(200);
  expect((await agent.upload(lease_id, "b.txt", "b")).status).toBe(200);
  expect((await agent.result(lease_id)).status).toBe(200);
  expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).text).toBe(content);
});
