import { once } from "node:events";
import { renameSync } from "node:fs";
import { type RequestListener, createServer } from "node:http";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findEngine } from "./find-engine.ts";
import { pingEngine } from "./ping-engine.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

let dir: string;
let closers: (() => void)[];

beforeEach(() => {
  dir = tempFolder();
  closers = [];
});

afterEach(() => {
  for (const close of closers) close();
});

async function listen(path: string, answer: RequestListener): Promise<() => void> {
  const server = createServer(answer).listen(path);
  await once(server, "listening");
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  closers.push(close);
  return close;
}

test("finds the engine that answers", async () => {
  await listen(join(dir, "engine.sock"), (_request, response) => response.end("OK"));
  const host = `unix://${dir}/engine.sock`;
  expect(await findEngine(host, {})).toMatchObject({ found: host });
});

test("distinguishes a missing socket from one whose engine is gone", async () => {
  const absent = await findEngine(`unix://${dir}/none.sock`, {});
  expect(absent.found).toBeUndefined();
  expect(absent.pings[0]).toMatchObject({ state: "absent" });

  const close = await listen(join(dir, "live.sock"), () => {});
  renameSync(join(dir, "live.sock"), join(dir, "stale.sock"));
  close();
  const stale = await findEngine(`unix://${dir}/stale.sock`, {});
  expect(stale.pings[0]).toMatchObject({ state: "silent", reason: "nothing listens there" });
});

test("gives up on an engine that takes the connection and says nothing", async () => {
  await listen(join(dir, "hung.sock"), () => {});
  const ping = await pingEngine(`unix://${dir}/hung.sock`, 500);
  expect(ping).toMatchObject({ state: "silent", reason: "no answer within 0.5 s" });
});

test("waits for an engine that its socket starts only now", async () => {
  await listen(join(dir, "slow.sock"), (_request, response) => {
    setTimeout(() => response.end("OK"), 4000);
  });
  const host = `unix://${dir}/slow.sock`;
  expect(await findEngine(host, {})).toMatchObject({ found: host });
});

test("an engine that answers with an error is silent, with that error as the reason", async () => {
  await listen(join(dir, "ill.sock"), (_request, response) => response.writeHead(500).end("ill"));
  const { pings } = await findEngine(`unix://${dir}/ill.sock`, {});
  expect(pings[0]?.state).toBe("silent");
  expect(pings[0]?.reason).toContain("500");
});
