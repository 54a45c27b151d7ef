import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import { testContract } from "../testing/contract-table.ts";
import { Api } from "../testing/contract/api.ts";
import { artifactRows } from "../testing/contract/artifacts.ts";
import { fileRows, uploaded } from "../testing/contract/files.ts";
import { inputFileRows } from "../testing/contract/input-files.ts";
import { leasePostRows } from "../testing/contract/lease-posts.ts";
import { refusedFileRows } from "../testing/contract/refused-files.ts";
import { servers } from "../testing/contract/servers.ts";
import { startNode } from "../testing/start-node.ts";
import { startS3 } from "../testing/start-s3.ts";
import { needs } from "../../scripts/testing/needs.ts";

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
