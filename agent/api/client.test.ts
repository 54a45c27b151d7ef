import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Agent } from "undici";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { type Client, createClient, retryTimes } from "./client.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { protocolHeader, protocolVersion } from "../../shared/wire/agent/protocol.ts";
import { fixedToken } from "./token-source.ts";

const lease = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
const started = { job_ref: "default@sha256:ab" };
const never = new AbortController().signal;

let api: FakeApi;
let client: Client;

beforeEach(async () => {
  api = await startFakeApi();
  const times = { retries: 3, minTimeout: 1, maxTimeout: 2 };
  const token = fixedToken("token-0123456789");
  client = createClient({ url: `${api.url}/`, token, dispatcher: new Agent() }, times);
});
afterEach(async () => {
  await client.close();
  await api[Symbol.asyncDispose]();
});

it("posts JSON with the agent's token", async () => {
  await client.started(lease, started, never);
  const { method, path, headers, json } = await api.request("/started");
  expect({ method, path, json }).toEqual({
    method: "POST",
    path: `/leases/${lease}/started`,
    json: started,
  });
  expect(headers).toMatchObject({
    authorization: "Bearer token-0123456789",
    "content-type": "application/json",
  });
});

describe("a token that was replaced while the agent runs", () => {
  const calls: [string, () => Promise<unknown>][] = [
    ["a post", () => client.started(lease, started, never)],
    ["a download", () => client.inputFile(lease, "ab".repeat(32), never)],
  ];
  it.each(calls)("is used for %s that was refused with the old one", async (_what, call) => {
    await client.close();
    let current = "token-that-is-old";
    const token = {
      current: () => current,
      isReplaced: (refused: string) => (current = "token-that-is-new") !== refused,
    };
    const times = { retries: 3, minTimeout: 1, maxTimeout: 2 };
    client = createClient({ url: api.url, token, dispatcher: new Agent() }, times);
    const path = `/leases/${lease}`;
    api.answer("/started", { status: 401 });
    api.answer("ab".repeat(32), { status: 401 }, { status: 200 });
    await call();
    expect(api.received.map(({ headers }) => headers.authorization)).toEqual([
      "Bearer token-that-is-old",
      "Bearer token-that-is-new",
    ]);
    expect(api.received.every((request) => request.path.startsWith(path))).toBe(true);
  });
});

it("a file that its own disk has lost is not asked for again", async () => {
  const file = { name: "x", path: "/nowhere/x", sizeBytes: 1, sha256: "ab".repeat(32) };
  await expect(client.upload(lease, file, never)).rejects.toMatchObject({ code: "ENOENT" });
});

describe("a transient failure", () => {
  it.each([
    ["500", { status: 500 }],
    ["503", { status: 503, headers: { "retry-after": "0" } }],
    ["429", { status: 429 }],
    ["a cut connection", "cut"],
    ["a proxy's page", { status: 200, body: "<html>" }],
    ["a proxy's redirect", { status: 302 }],
    ["a firewall's 403", { status: 403, body: "<html>", isProxy: true }],
    ["a proxy's 401 with its own problem body", { status: 401, isProxy: true }],
    ["a 401 without the API's explanation", { status: 401, body: "<html>" }],
  ] as const)("%s is repeated with the same body", async (_name, answer) => {
    api.answer("/started", answer, answer);
    await client.started(lease, started, never);
    expect(api.received.map(({ bytes }) => bytes.toString())).toEqual(
      Array(3).fill(JSON.stringify(started)),
    );
  });

  it("is given up after the last repetition, with the API's reason", async () => {
    const body = { title: "x", status: 503, detail: "the disk is full", correlation_id: "c" };
    const answer = { status: 503, body };
    api.answer("/started", answer, answer, answer, answer);
    await expect(client.started(lease, started, never)).rejects.toMatchObject({
      kind: "transient",
      message: `POST /leases/${lease}/started answered 503: the disk is full`,
    });
    expect(api.count("/started")).toBe(4);
  });

  it.each([
    ["3600", 30_000],
    ["2147484", 30_000],
    ["7", 7000],
    ["soon", 0],
  ])("with Retry-After: %s asks the agent to wait %d ms", async (value, retryAfterMs) => {
    api.answer("/poll", { status: 503, headers: { "retry-after": value } });
    const poll = client.poll({ wait_s: 0 } as never, never);
    await expect(poll).rejects.toMatchObject({ kind: "transient", retryAfterMs });
  });

  it("names a proxy if the refusal is not the API's", async () => {
    api.answer("/poll", { status: 403, body: "<html>", isProxy: true });
    await expect(client.poll({ wait_s: 0 } as never, never)).rejects.toMatchObject({
      kind: "transient",
      message:
        "POST /poll answered 403, but not by an Airlock API: look for a proxy or a firewall in between",
    });
  });

  it("is repeated by default for as long as the lease lasts", async () => {
    const token = fixedToken("token-0123456789");
    const times = { ...retryTimes, minTimeout: 1, maxTimeout: 1 };
    const patient = createClient({ url: api.url, token, dispatcher: new Agent() }, times);
    api.answer("/started", ...Array<"cut">(40).fill("cut"));
    await patient.started(lease, started, never);
    expect(api.count("/started")).toBe(41);
    await patient.close();
  });

  it("is not repeated once the signal is aborted", async () => {
    const gone = new AbortController();
    api.answer("/started", "silence");
    const call = client.started(lease, started, gone.signal);
    const { hungUp } = await api.request("/started");
    gone.abort(new Error("lost"));
    await expect(call).rejects.toThrow("lost");
    expect(api.count("/started")).toBe(1);
    await hungUp;
  });
});

it.each([
  [401, "unauthorized"],
  [403, "unauthorized"],
  [409, "lease_lost"],
  [400, "rejected"],
  [404, "rejected"],
  [413, "rejected"],
])("%d is %s and not repeated", async (status, kind) => {
  api.answer("/result", { status });
  await expect(client.release(lease, {} as never, never)).resolves.toBeUndefined();
  await expect(client.result(lease, {} as never, false, never)).rejects.toMatchObject({ kind });
  expect(api.count("/result")).toBe(1);
});

it("does not accept a reply of another shape to a poll", async () => {
  api.answer("/poll", { status: 200, body: { jobs: "none" } });
  await expect(client.poll({ wait_s: 0 } as never, never)).rejects.toMatchObject({
    kind: "transient",
    message: "POST /poll answered with an unknown shape",
  });
});

it("reports that an API of another protocol version cannot be used", async () => {
  api.answer("/poll", { status: 200, headers: { [protocolHeader]: "1" } });
  await expect(client.poll({ wait_s: 0 } as never, never)).rejects.toMatchObject({
    kind: "incompatible",
    message: `The API speaks version 1 of the agents' protocol, the agent version ${protocolVersion}: run the same version of Airlock on both.`,
  });
  expect(api.received[0]?.headers[protocolHeader]).toBe(protocolVersion);
});

it("treats an API that is not there as transient", async () => {
  await api[Symbol.asyncDispose]();
  await expect(client.poll({ wait_s: 0 } as never, never)).rejects.toMatchObject({
    kind: "transient",
  });
  api = await startFakeApi();
});

describe("an artifact", () => {
  let folder: string;
  beforeEach(async () => {
    folder = tempFolder();
  });

  async function spool(name: string, bytes: Buffer) {
    const path = join(folder, "0");
    await writeFile(path, bytes);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    return { name, path, sizeBytes: bytes.length, sha256 };
  }

  it.each([
    ["empty", 0],
    ["larger than any buffer", 300_000],
  ])("that is %s is uploaded byte for byte, with size and hash", async (_name, size) => {
    const bytes = Buffer.alloc(size, "airlock");
    const artifact = await spool("sub folder/plot ü.png", bytes);
    await client.upload(lease, artifact, never);
    const put = api.received[0]!;
    expect(put.method).toBe("PUT");
    expect(put.path).toBe(`/leases/${lease}/artifacts/sub%20folder%2Fplot%20%C3%BC.png`);
    expect(put.bytes.equals(bytes)).toBe(true);
    expect(put.headers).toMatchObject({
      "content-length": String(size),
      "x-airlock-sha256": artifact.sha256,
    });
    expect(put.headers["transfer-encoding"]).toBeUndefined();
  });

  it("is sent again from its first byte", async () => {
    const bytes = Buffer.alloc(300_000, "airlock");
    api.answer("plot.png", "cut", { status: 503 });
    await client.upload(lease, await spool("plot.png", bytes), never);
    expect(api.received.map((put) => put.bytes.equals(bytes))).toEqual([true, true, true]);
  });
});
