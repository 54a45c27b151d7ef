import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { request } from "undici";
import { afterAll, expect, test } from "vitest";
import { UploadedFile } from "../../shared/wire/file.ts";
import { servers } from "../testing/contract/servers.ts";
import { residentBytes } from "../testing/resident.ts";
import { startNode } from "../testing/start-node.ts";

const MiB = 1024 * 1024;
const sizeMiB = 1024;
/** Far less than the file. */
const growthBytes = 128 * MiB;

const service = await startNode({ ...servers.open, AIRLOCK_MAX_FILE_BYTES: String(sizeMiB * MiB) });
afterAll(() => service.close());

function* content(pieces: number): Generator<Buffer> {
  for (let n = 0; n < pieces; n++) yield Buffer.alloc(MiB, `piece ${n};`);
}

async function upload(pieces: number): Promise<UploadedFile> {
  const { statusCode, body } = await request(`${service.url}/files?name=large`, {
    method: "POST",
    headers: { "Content-Length": String(pieces * MiB) },
    body: Readable.from(content(pieces)),
    headersTimeout: 0,
  });
  expect(statusCode).toBe(201);
  return UploadedFile.parse(await body.json());
}

async function hashOf(path: string): Promise<string> {
  const { body } = await request(service.url + path, { bodyTimeout: 0 });
  const hash = createHash("sha256");
  for await (const piece of body as AsyncIterable<Uint8Array>) hash.update(piece);
  return hash.digest("hex");
}

test("the memory of the API stays flat while a file of 1 GiB is uploaded and fetched", async () => {
  // Pieces that wait for the garbage collector take some room, whatever the file's size.
  await hashOf(`/files/${(await upload(sizeMiB / 4)).file_id}`);
  const before = residentBytes(service, "peak");
  const hash = createHash("sha256");
  for (const piece of content(sizeMiB)) hash.update(piece);
  const sha256 = hash.digest("hex");
  const file = await upload(sizeMiB);
  expect(file).toMatchObject({ sha256, size_bytes: sizeMiB * MiB });
  expect(await hashOf(`/files/${file.file_id}`)).toBe(sha256);
  expect(residentBytes(service, "peak") - before).toBeLessThan(growthBytes);
});
