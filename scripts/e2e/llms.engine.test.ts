import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { endpointsOf, type OpenApiDocument } from "../../api/testing/openapi-document.ts";
import { needs } from "../testing/needs.ts";
import { startTestService } from "../testing/test-service.ts";

const key = "key-0123456789abcdef";

test(
  "the examples of /llms.txt run as they are, and every endpoint that it names exists",
  needs("curl and jq"),
  async () => {
    await using service = await startTestService({ key });
    await service.startAgent();
    const answer = await service.send("GET", "/llms.txt");
    expect(answer.headers.get("Content-Type")).toMatch("text/plain");

    const examples = [...answer.text.matchAll(/^```sh\n([^]*?)^```/gm)].map(([, text]) => text!);
    const env = { ...process.env, AIRLOCK_URL: service.url, AIRLOCK_KEY: key };
    const outputs = await Promise.all(
      examples.map((text) => promisify(execFile)("bash", ["-ec", text], { env })),
    );
    const [run, later] = outputs.map(({ stdout }) => stdout);
    expect(JSON.parse(run!)).toMatchObject({ success: true, stdout: "42\n" });
    expect(later).toMatch(/"status":"succeeded".*"name":"a.txt".*}done$/);

    const { json } = await service.send<OpenApiDocument>("GET", "/openapi.json");
    const known = endpointsOf(json).map(({ method, path }) => `${method} ${path}`);
    const named = [...answer.text.matchAll(/`((?:GET|POST) \/[^`\s]*)/g)].map(([, call]) => call!);
    const anyName = (call: string) => call.replaceAll(/\{\w+\}/g, "{}");
    expect(named.length).toBeGreaterThan(5);
    expect(named.map(anyName).filter((call) => !known.map(anyName).includes(call))).toEqual([]);
  },
);
