import { describe, expect, test } from "vitest";
import { testContract } from "../testing/contract-table.ts";
import { artifactRows } from "../testing/contract/artifacts.ts";
import { leasePostRows } from "../testing/contract/lease-posts.ts";
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
  testContract(startOverS3, [...artifactRows, ...uploadRows]);

  test("uploaded files are in the bucket", () => {
    expect(stored.length).toBeGreaterThan(artifactRows.length / 2);
  });
});
