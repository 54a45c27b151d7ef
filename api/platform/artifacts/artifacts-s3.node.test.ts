import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { describeError } from "../../../shared/log-line.ts";
import { artifactsS3, type S3Artifacts } from "./artifacts-s3.node.ts";

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
  ["<Error><Code>Denied</Code><Message>not &quot;b&quot;</Message></Error>", '403 Denied: not "b"'],
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
