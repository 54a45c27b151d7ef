import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readlinkSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { describeError } from "../../shared/log-line.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { artifactFolder, artifactsS3, type S3Artifacts } from "./artifacts.node.ts";

describe("artifacts fs", () => {
  let folder: string;
  beforeEach(() => {
    folder = tempFolder();
  });
  afterEach(() => vi.restoreAllMocks());

  async function spyOnSync() {
    const file = await open(folder);
    const prototype = Object.getPrototypeOf(file) as FileHandle;
    await file.close();
    return { sync: Reflect.get(prototype, "sync"), spy: vi.spyOn(prototype, "sync") };
  }

  /** Paths of what is synced from now on; the syncs still happen. */
  async function watchSyncs(): Promise<string[]> {
    const synced: string[] = [];
    const { sync, spy } = await spyOnSync();
    spy.mockImplementation(function (this: FileHandle) {
      synced.push(readlinkSync(`/proc/self/fd/${this.fd}`));
      return sync.call(this);
    });
    return synced;
  }

  test("a put syncs the file and every folder that leads to it, also those that another put has just made", async () => {
    const bytes = new TextEncoder().encode("content");
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const root = join(folder, "artifacts");
    mkdirSync(join(root, "job", "lease"), { recursive: true });
    const synced = await watchSyncs();
    const announced = { sizeBytes: bytes.length, sha256 };
    await artifactFolder(root).put("job/lease/sub/a.txt", new Blob([bytes]).stream(), announced);
    expect(synced[0]).toMatch(/\/incoming\/[^/]+$/);
    expect(synced.slice(1).sort()).toEqual(
      ["", "artifacts", "artifacts/job", "artifacts/job/lease", "artifacts/job/lease/sub"].map(
        (path) => join(folder, path).replace(/\/$/, ""),
      ),
    );
  });

  test("what the disk cannot keep is not stored, even if all of it was written", async () => {
    const { spy } = await spyOnSync();
    spy.mockRejectedValue(Object.assign(new Error("full"), { code: "ENOSPC" }));
    const announced = { sizeBytes: 1, sha256: undefined };
    const put = artifactFolder(folder).put("job/a", new Blob(["a"]).stream(), announced);
    await expect(put).rejects.toThrow("the disk is full");
    expect(existsSync(join(folder, "job/a"))).toBe(false);
    expect(readdirSync(join(folder, "incoming"))).toEqual([]);
  });

  test.each(["", ".", "..", "../beside", "./", "job/..", "job/../../beside"])(
    "nothing is removed under the prefix %j, which leads elsewhere",
    async (prefix) => {
      for (const name of ["beside", "artifacts/job"]) {
        mkdirSync(join(folder, name), { recursive: true });
      }
      await expect(artifactFolder(join(folder, "artifacts")).remove(prefix)).rejects.toThrow(
        "no prefix of stored bytes",
      );
      expect(existsSync(join(folder, "beside"))).toBe(true);
      expect(existsSync(join(folder, "artifacts/job"))).toBe(true);
    },
  );
});

describe("artifacts s3", () => {
  const page = (content: string) =>
    `<?xml version="1.0"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${content}</ListBucketResult>`;

  let asked: string[];
  let answers: [status: number, body: string][];
  let server: Server;
  let s3: S3Artifacts;
  beforeEach(async () => {
    [asked, answers] = [[], []];
    server = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      const [status, body] = answers.shift()!;
      response.writeHead(status).end(body);
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    s3 = artifactsS3({
      endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      bucket: "b",
      region: "us-east-1",
      accessKeyId: "id",
      secretAccessKey: "secret",
      pathStyle: true,
      timeoutMs: 30_000,
    });
  });
  afterEach(async () => {
    await s3.close();
    server.close();
  });

  test("a list is read as XML: escaped characters are part of keys and tokens", async () => {
    answers.push(
      [
        200,
        page(
          "<Contents><Key>x/a</Key></Contents><NextContinuationToken>&lt;1&#43;2&gt;</NextContinuationToken>",
        ),
      ],
      [204, ""],
      [200, page('<Contents><Key attribute="1">x/<![CDATA[b]]></Key></Contents>')],
      [204, ""],
    );
    await s3.remove("x");
    expect(asked).toEqual([
      "GET /b/?list-type=2&prefix=x%2F",
      "DELETE /b/x/a",
      "GET /b/?list-type=2&prefix=x%2F&continuation-token=%3C1%2B2%3E",
      "DELETE /b/x/b",
    ]);
  });

  test.each([
    [
      "<Error><Code>Denied</Code><Message>not &quot;b&quot;</Message></Error>",
      '403 Denied: not "b"',
    ],
    ["<html><p>not XML", "403"],
    ["", "403"],
  ])("a refusal has the service's message: %s", async (body, said) => {
    answers.push([403, body]);
    const error: unknown = await s3.check().catch((e: unknown) => e);
    expect(describeError(error)).toBe(`the artifact store refused a request: ${said}`);
  });

  test("a list that is not XML is an outage", async () => {
    answers.push([200, "<html><p>a portal's page"]);
    await expect(s3.check()).rejects.toThrow("the artifact store's answer is not XML");
  });
});
