import { createHash } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { expect } from "vitest";
import type { TestService } from "./test-service.ts";

export const mib = 1024 * 1024;
/** What two streams of 100 MiB may take, less than held whole: V8 collects buffers each time that 64 MiB more are there. */
export const flatBytes = 160 * mib;

/** Writes 100 MiB that no two offsets share, and prints their SHA-256. */
const writesMuch = `
import hashlib
sha256 = hashlib.sha256()
with open("/output/much.bin", "wb") as file:
    for n in range(100 * 1024):
        block = hashlib.sha512(n.to_bytes(8, "big")).digest() * 16
        sha256.update(block)
        file.write(block)
print(sha256.hexdigest())
`;

/** The file that one job left. */
export interface Stored {
  readonly url: string;
  readonly jobId: string;
  readonly sha256: string;
}

export async function run(service: TestService, code: string) {
  const result = await service.execute(code, { timeout: 60 });
  expect(result).toMatchObject({ success: true });
  return result as { job_id: string; stdout: string };
}

export async function store(service: TestService): Promise<Stored> {
  const { job_id, stdout } = await run(service, writesMuch);
  return { url: service.url, jobId: job_id, sha256: stdout.trim() };
}

/** Two at once, each with a file of its own. */
export function storeTwo(service: TestService): Promise<Stored[]> {
  return Promise.all([store(service), store(service)]);
}

export async function download({ url, jobId }: Stored, headers = {}): Promise<IncomingMessage> {
  const request = get(`${url}/jobs/${jobId}/artifacts/much.bin`, { headers, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response;
}

async function hashOf(stream: AsyncIterable<Buffer>): Promise<{ sha256: string; size: number }> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { sha256: hash.digest("hex"), size };
}

export async function arrivesWhole(stored: Stored): Promise<void> {
  const whole = await hashOf(await download(stored));
  expect(whole).toEqual({ sha256: stored.sha256, size: 100 * mib });
  const part = await download(stored, { Range: `bytes=${50 * mib}-${90 * mib - 1}` });
  expect(part.statusCode).toBe(206);
  expect((await hashOf(part)).size).toBe(40 * mib);
}
