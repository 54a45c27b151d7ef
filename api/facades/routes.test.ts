import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type Api, execute } from "../../clients/compat/facade.ts";
import type { Config } from "../../shared/config/config.ts";
import { createApp } from "../app.ts";
import { syncResult } from "../http/examples.ts";
import { testDeps } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";

useOneStore();

test.each([
  ["dify/v1/sandbox/run", {}],
  ["dify/v1/sandbox/run", { "X-Api-Key": "not-a-key-of-16-characters" }],
  ["piston/api/v2/execute", {}],
])(
  "a request to %s without a key that holds takes no place: its body is not waited for",
  async (path, key) => {
    const compat: Config["compat"] = ["dify", "piston"];
    const config = { api_auth_enabled: true, api_keys: ["a-key-of-16-characters"], compat };
    const app = createApp(testDeps(store.db, store.folder, Date.now, config));
    let isRead = false;
    const pull = (controller: ReadableStreamDefaultController): void => {
      isRead = true;
      controller.close();
    };
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const headers = { "Content-Type": "application/json", ...key };
    const request = { method: "POST", body, headers, duplex: "half" as const };
    const { status } = await app.request(`/compat/${path}`, request);
    expect({ status, isRead }).toEqual({ status: 401, isRead: false });
  },
);

test("a job whose answer has begun is not cancelled when its client's time is over: the answer would break off", async () => {
  const [lastMs, isStopping] = [20, () => false];
  const api: Api = async (_path, init) => {
    const body = new ReadableStream<string>({
      async start(controller) {
        controller.enqueue(" ");
        await sleep(5 * lastMs);
        if (init!.signal!.aborted) return controller.error(init!.signal!.reason);
        controller.enqueue(JSON.stringify(syncResult));
        controller.close();
      },
    });
    return new Response(body.pipeThrough(new TextEncoderStream()));
  };
  const signal = new AbortController().signal;
  const call = { api, signal, isStopping, onRunning: () => {}, room: { waiting: 0 } };
  expect(await execute(call, { code: "1" }, 1000, lastMs)).toEqual(syncResult);
});
