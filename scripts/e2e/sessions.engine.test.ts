import { expect, test } from "vitest";
import { containersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import type { Session } from "../../shared/wire/client/session.ts";
import { places, placesOfTier } from "../testing/places.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

type Result = Record<string, unknown> & { readonly job_id: string };

/** A session, and its calls. */
async function open(service: TestService, more: Record<string, unknown> = {}) {
  const { status, json } = await service.send<Session>("POST", "/sessions", { wait: 30, ...more });
  expect([status, json.status]).toEqual([201, "ready"]);
  const path = `/sessions/${json.session_id}`;
  return {
    path,
    session: json,
    read: async () => (await service.send<Session>("GET", path)).json,
    call: async (code: string, options: Record<string, unknown> = {}) =>
      (await service.send<Result>("POST", `${path}/execute`, { code, ...options })).json,
    post: async (to: string, body: unknown = {}) =>
      (await service.send<Result>("POST", `${path}/${to}`, body)).json,
  };
}

const textsOf = ({ results }: Result): unknown[] =>
  (results as { data: Record<string, string> }[] | undefined)?.map(
    ({ data }) => data["text/plain"],
  ) ?? [];

test.each(placesOfTier)(
  "in %s, variables and files stay from call to call, until the session is deleted",
  async (place) => {
    await using service = await startTestService();
    const agent = await service.startAgent("sessions", places[place]);
    const { session, call, post, path, read } = await open(service, { env: { OF: "session" } });
    expect(session).toMatchObject({
      container_backend: place === "forks" ? "zygote" : "engine",
      container_runtime: place === "gVisor" ? "runsc" : "runc",
      contexts: ["default"],
    });

    expect(await call("x = 41")).toMatchObject({ success: true });
    expect(textsOf(await call("import os\nx + 1, os.environ['OF']"))).toEqual(["(42, 'session')"]);
    const failed = await call("1 / 0");
    expect(failed).toMatchObject({ success: false, error: { type: "division_error" } });
    const written = await call("print(open('/input/a').read()); open('b', 'w').write('made')", {
      files: [{ name: "a", text: "brought" }],
    });
    expect(await service.record(written.job_id)).toMatchObject({
      stdout: "brought\n",
      artifacts: [{ name: "b" }],
    });

    const { context_id } = await post("contexts");
    expect(textsOf(await call("x = 1\nx", { context: context_id }))).toEqual(["1"]);
    expect(textsOf(await call("x"))).toEqual(["41"]);

    expect(await post("execute", { command: ["cat", "b"] })).toMatchObject({ stdout: "made" });
    expect((await service.send("GET", `${path}/files/b`)).text).toBe("made");
    expect((await service.send("GET", `${path}/files`)).json["items"]).toMatchObject([
      { path: "b" },
    ]);

    await post("restart");
    expect(await call("x")).toMatchObject({ error: { type: "name_error" } });
    expect((await service.send("GET", `${path}/files/b`)).text).toBe("made");

    const running = service.send<Result>("POST", `${path}/execute`, {
      code: "import time\ny = 1\ntime.sleep(60)",
    });
    await waitUntil("the call runs", async () => (await post("interrupt")).job_id !== null);
    expect((await running).json).toMatchObject({ error: { type: "cancelled" } });

    expect((await service.send("DELETE", path)).status).toBe(204);
    expect(await read()).toMatchObject({ status: "ended", reason: "deleted" });
    if (place !== "forks")
      await waitUntil("its container is gone", async () => {
        return (await containersOf(agent.name)).length === 0;
      });
    expect(await service.execute("print('a job')")).toMatchObject({ stdout: "a job\n" });
  },
);

test("a session survives a restart of the API between two calls", async () => {
  await using service = await startTestService();
  await service.startAgent("restart", places.forks);
  const { call } = await open(service);
  await call("x = 1");
  await service.api().close();
  await service.startApi();
  expect(textsOf(await call("x"))).toEqual(["1"]);
});

test("calls run in order, one at a time, beside jobs that fill all slots", async () => {
  await using service = await startTestService();
  await service.startAgent("order", { ...places.forks, AIRLOCK_MAX_WORKERS: "1" });
  const { call, post } = await open(service);
  const job = await service.submit("import time\ntime.sleep(60)");
  await service.untilBegun(job);
  await call("seen = []");
  const ids: string[] = [];
  for (let n = 0; n < 20; n++)
    ids.push((await post("execute/async", { code: `seen.append(${n})` })).job_id);
  expect(textsOf(await call("seen"))).toEqual([`[${[...ids.keys()].join(", ")}]`]);
});
