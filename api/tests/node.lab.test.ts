import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { Readable } from "node:stream";
import { request } from "undici";
import { afterAll, describe, expect, test } from "vitest";
import { peakBytes } from "../../shared/testing/memory.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { UploadedFile } from "../../shared/wire/files.ts";
import { testContract } from "../testing/contract-table.ts";
import { leasePostRows } from "../testing/contract/agents.ts";
import { Api, servers } from "../testing/contract/api.ts";
import {
  artifactRows,
  fileRows,
  inputFileRows,
  refusedFileRows,
  uploaded,
} from "../testing/contract/files.ts";
import { startNode } from "../testing/start-node.ts";
import { startS3 } from "../testing/start-stores.ts";

const stored: string[] = [];

/** A service whose artifacts are in a bucket of an S3 service. */
async function startOverS3(vars: Record<string, string>) {
  const s3 = await startS3();
  const api = await startNode({ ...vars, ...s3.vars });
  return {
    ...api,
    async close() {
      await api.close();
      stored.push(...(await s3.keys()));
      await s3.close();
    },
  };
}

describe("over S3", needs("swift"), () => {
  const uploadRows = leasePostRows.filter(({ rule }) => /upload/i.test(rule));
  const inputRows = [...inputFileRows, ...refusedFileRows];
  testContract(startOverS3, [...artifactRows, ...uploadRows, ...fileRows, ...inputRows]);

  test("uploaded files are in the bucket", () => {
    expect(stored.length).toBeGreaterThan(artifactRows.length / 2);
  });

  test("an upload to POST /files that breaks off leaves nothing in the bucket", async () => {
    const s3 = await startS3();
    const api = await startNode({ ...servers.open, ...s3.vars });
    try {
      const { file_id } = await uploaded(new Api(api.url), "whole", "content");
      const { hostname, port } = new URL(api.url);
      for (const sent of [0, 100, 900_000]) {
        const socket = connect(Number(port), hostname);
        const head = `POST /files?name=part HTTP/1.1\r\nHost: ${hostname}:${port}\r\n`;
        socket.write(`${head}Content-Length: ${sent + 100}\r\n\r\n${"x".repeat(sent)}`);
        socket.end();
        await once(socket.resume(), "close");
      }
      expect(await s3.keys()).toEqual([expect.stringContaining(file_id) as string]);
      const page = await (await fetch(`${api.url}/files`)).json();
      expect(page).toMatchObject({ count: 1, items: [{ file_id }] });
    } finally {
      await api.close();
      await s3.close();
    }
  });
});

describe("node large file", async () => {
  const MiB = 1024 * 1024;
  const sizeMiB = 1024;
  /** Far less than the file. */
  const growthBytes = 128 * MiB;

  const service = await startNode({
    ...servers.open,
    AIRLOCK_MAX_FILE_BYTES: String(sizeMiB * MiB),
  });
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
    const before = peakBytes(service.child.pid!);
    const hash = createHash("sha256");
    for (const piece of content(sizeMiB)) hash.update(piece);
    const sha256 = hash.digest("hex");
    const file = await upload(sizeMiB);
    expect(file).toMatchObject({ sha256, size_bytes: sizeMiB * MiB });
    expect(await hashOf(`/files/${file.file_id}`)).toBe(sha256);
    expect(peakBytes(service.child.pid!) - before).toBeLessThan(growthBytes);
  });
});
