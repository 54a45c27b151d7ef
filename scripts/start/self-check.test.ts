import { createServer, type RequestListener } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { loadConfig } from "../../shared/config/config.ts";
import { OperatorError } from "../command/operator-error.ts";
import { listen } from "../../shared/testing/listen.ts";
import { selfCheck } from "./self-check.ts";

const config = loadConfig({}, {});
const timeouts = { answerMs: 10_000, engineMs: 10_000, pauseMs: 1 };

test("a first job that is not answered says so, and where to look", async () => {
  const url = await urlOf(() => {});
  expect(await failure(selfCheck(url, config, { ...timeouts, answerMs: 50 }))).toBe(
    "the self-check got no answer within 0.05 s.\nThe messages above say what it waits for; if this machine was only slow, run npm start again.",
  );
});

test("a refused first job is sent again until the agent's engine works", async () => {
  const api = await startApi(({ looks }) => ({ works: looks > 3, runs: looks > 3 }));
  await selfCheck(api.url, config, timeouts);
  expect(api.seen).toEqual({ looks: 4, jobs: 2, builds: 0 });
});

test("an engine that fails while the first job waits is waited for, too", async () => {
  const api = await startApi(({ looks, jobs }) => ({ works: looks !== 2, runs: jobs > 2 }));
  await selfCheck(api.url, config, timeouts);
  expect(api.seen).toEqual({ looks: 3, jobs: 3, builds: 0 });
});

test("a first job that is refused while the engine works lacks its image, which is built", async () => {
  const api = await startApi(({ builds }) => ({ works: true, runs: builds > 0 }));
  await selfCheck(api.url, config, timeouts);
  expect(api.seen).toEqual({ looks: 2, jobs: 3, builds: 1 });
});

test("an engine that never works ends the self-check without a build", async () => {
  const api = await startApi(() => ({ works: false, runs: false }));
  expect(await failure(selfCheck(api.url, config, { ...timeouts, engineMs: 50 }))).toBe(
    "the agent's container engine did not work within 0.05 s; the first job was answered HTTP 503: refused\nThe messages above say why; start or mend the engine, then run npm start again.",
  );
  expect(api.seen).toMatchObject({ jobs: 1, builds: 0 });
});

test("with managed keys alone there is no self-check, which has no key", async () => {
  const api = await startApi(() => ({ works: true, runs: true }));
  const closed = loadConfig({ api_auth_enabled: true }, {});
  await selfCheck(api.url, closed, timeouts);
  expect(api.seen.jobs).toBe(0);
  const key = "operator-key-0123456789";
  await selfCheck(
    api.url,
    loadConfig({ api_auth_enabled: true, operator_keys: [key] }, {}),
    timeouts,
  );
  expect(api.seen.jobs).toBe(1);
});

type Seen = { looks: number; jobs: number; builds: number };

/** An API whose engine works and whose jobs run as `state` says after what it has been asked. */
async function startApi(
  state: (seen: Seen) => { works: boolean; runs: boolean },
): Promise<{ url: string; seen: Seen }> {
  const seen = { looks: 0, jobs: 0, builds: 0 };
  const url = await urlOf(({ url: path }, response) => {
    if (path === "/health") {
      seen.looks += 1;
      response.end(JSON.stringify({ status: state(seen).works ? "healthy" : "degraded" }));
      return;
    }
    if (path === "/execute") {
      seen.jobs += 1;
      if (state(seen).runs)
        response.end(JSON.stringify({ success: true, stdout: "", output: { sum: 42 } }));
      else response.writeHead(503).end("refused");
      return;
    }
    seen.builds += 1;
    response.end("{}");
  });
  return { url, seen };
}

async function urlOf(answer: RequestListener): Promise<string> {
  const server = await listen(createServer(answer));
  onTestFinished(() => server[Symbol.asyncDispose]());
  return server.url;
}

async function failure(check: Promise<void>): Promise<string> {
  const error = await check.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(OperatorError);
  return (error as Error).message;
}
