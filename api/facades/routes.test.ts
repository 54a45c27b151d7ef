import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type Api, execute } from "./facade.ts";
import type { Config } from "../../shared/config/config.ts";
import { createApp } from "../app.ts";
import { processMetrics } from "../platform/process.node.ts";
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

test("a request is counted once, under its own path, and its requests to the endpoints are not", async () => {
  const config = { api_auth_enabled: false, compat: ["e2b" as const] };
  const metrics = processMetrics();
  const deps = { ...testDeps(store.db, store.folder, Date.now, config), processMetrics: metrics };
  const app = createApp(deps);
  const headers = { "X-Api-Key": "anything" };
  const answer = await app.request("http://localhost/compat/e2b/sandboxes", { headers });
  expect(await answer.json()).toEqual([]);
  expect(answer.headers.get("X-Correlation-ID")).not.toBeNull();
  const counts = [
    ...(await metrics.text()).matchAll(/^airlock_http_request\w*_count\{(.*)\} (.*)$/gm),
  ];
  const labels = 'method="GET",route="/compat/e2b/*",status="200"';
  expect(counts.map(([, ...of]) => of)).toEqual([[labels, "1"]]);
});

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
