import { expect, test } from "vitest";
import type { Call } from "../facade.ts";
import { e2b } from "./e2b.ts";
import { createTokens } from "./token.ts";

const service = {
  tokens: createTokens(() => Promise.resolve(new Uint8Array(32))),
  maxTimeoutS: 60,
};

/** Restarts a context of a sandbox, of a service that answers as the two statuses say. */
async function restart(restarted: number, session: number, id = "s") {
  const asked: string[] = [];
  const call: Call = {
    method: "POST",
    path: "/contexts/c/restart",
    query: new URLSearchParams(),
    headers: new Headers({ "E2b-Sandbox-Id": id }),
    key: "key",
    networkOf: () => "none",
    bytes: () => Promise.resolve(new Uint8Array()),
    text: () => Promise.resolve(""),
    form: () => Promise.resolve([]),
    api(path) {
      asked.push(path);
      const status = path.endsWith("/restart") ? restarted : session;
      return Promise.resolve(Response.json({ detail: "no" }, { status }));
    },
    signal: new AbortController().signal,
    onRunning: () => {},
    isStopping: () => false,
  };
  const answer = await e2b(service).answer(call);
  return { status: answer.status, asked };
}

test("a call is one request; the sandbox is looked up for one that is refused, to say whether it is gone", async () => {
  const path = "/sessions/s";
  expect(await restart(200, 404)).toEqual({ status: 204, asked: [`${path}/restart`] });
  expect(await restart(409, 404)).toEqual({ status: 502, asked: [`${path}/restart`, path] });
  expect(await restart(503, 404)).toEqual({ status: 503, asked: [`${path}/restart`] });
});

test("the id of a sandbox is no path", async () => {
  expect((await restart(200, 404, "../keys?")).asked).toEqual(["/sessions/..%2Fkeys%3F/restart"]);
});
