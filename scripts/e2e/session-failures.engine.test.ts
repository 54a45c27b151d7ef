import { expect, test } from "vitest";
import { containersOf, rawEngine } from "../../agent/sandbox/testing/raw-engine.ts";
import { Follower, textOf } from "../../api/testing/follower.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import type { Session } from "../../shared/wire/client/session.ts";
import { isLab } from "../../shared/testing/tier.ts";
import { type Place, places, placesOfTier } from "../testing/places.ts";
import { startTestService, type TestAgent, type TestService } from "../testing/test-service.ts";

/** A session with a call that runs and has printed, and two calls that wait. */
async function openBusy(service: TestService, code = "time.sleep(120)") {
  const made = await service.send<Session>("POST", "/sessions", { wait: 60 });
  expect(made.status).toBe(201);
  const path = `/sessions/${made.json.session_id}`;
  const submit = async (text: string): Promise<string> => {
    const body = { code: text, timeout: 120 };
    const { json } = await service.send("POST", `${path}/execute/async`, body);
    return String(json["job_id"]);
  };
  const running = await submit(`import time\nprint("begun", flush=True)\n${code}`);
  await using follower = await Follower.open(service.url, `/jobs/${running}/events`);
  await follower.until(() => textOf(follower.seen, "stdout") === "begun\n");
  return { path, running, waiting: [await submit("1"), await submit("2")] };
}

type Busy = Awaited<ReturnType<typeof openBusy>>;

async function fateOf(service: TestService, { path, running, waiting }: Busy) {
  const ended = await Promise.all([running, ...waiting].map((id) => service.ended(id)));
  const session = (await service.send<Session>("GET", path)).json;
  const [call, ...rest] = ended.map(({ status, error, stdout }) => {
    return { end: `${status} ${error?.type}`, message: error?.message ?? "", stdout };
  });
  return { session: `${session.status} ${session.reason}`, call, rest };
}

/** What a client finds after a fault, by the table of sessions that end. */
function ends(reason: string, end: string, stdout = "begun\n") {
  const message = expect.stringContaining(reason) as string;
  const waited = { end: "cancelled cancelled", message, stdout: "" };
  return {
    session: `ended ${reason}`,
    call: expect.objectContaining({ end, stdout }) as object,
    rest: [waited, waited],
  };
}

const killContainers = async ({ name }: TestAgent): Promise<void> => {
  for (const id of await containersOf(name)) await rawEngine.getContainer(id).kill();
};

const faults: Record<
  string,
  [fault: (service: TestService, agent: TestAgent, busy: Busy) => Promise<unknown>, fate: object]
> = {
  "its agent is killed": [
    async (service, agent) => {
      agent.process.kill("SIGKILL");
      await agent.exit;
      await service.startAgent("agent");
    },
    ends("agent_lost", "failed internal_error"),
  ],
  "its agent is stopped": [
    async (_service, agent) => {
      agent.process.kill("SIGTERM");
      await agent.exit;
    },
    ends("agent_stopped", "cancelled cancelled"),
  ],
  "its container or mother is killed": [
    (_service, agent) => killContainers(agent),
    ends("engine_lost", "failed internal_error"),
  ],
  "it is deleted": [
    (service, _agent, { path }) => service.send("DELETE", path),
    ends("deleted", "cancelled cancelled"),
  ],
  "its lifetime is over": [
    (service, _agent, { path }) => service.send("PATCH", path, { lifetime: 1 }),
    ends("lifetime", "cancelled cancelled"),
  ],
};

const rows = placesOfTier.flatMap((place) =>
  Object.keys(faults).map((what): [Place, string] => [place, what]),
);

test.each(rows)("in %s: %s while a call runs and two wait", async (place, what) => {
  const [fault, fate] = faults[what]!;
  await using service = await startTestService({
    api: { AIRLOCK_LIVENESS_S: "4", AIRLOCK_LEASE_TTL_S: "20" },
    agents: { ...places[place], AIRLOCK_DRAIN_GRACE_S: "1" },
  });
  const agent = await service.startAgent("agent");
  const busy = await openBusy(service);
  await fault(service, agent, busy);
  expect(await fateOf(service, busy)).toEqual(fate);
  const refused = await service.send("POST", `${busy.path}/execute`, { code: "1" });
  expect([refused.status, refused.json["code"]]).toEqual([409, "session_ended"]);
  const isForked = place === "forks";
  await waitUntil("its container is gone", async () => {
    return (await containersOf(agent.name)).length <= (isForked ? 1 : 0);
  });
});

test.each(placesOfTier)(
  "in %s, the API is killed while a call runs: nothing is lost",
  async (place) => {
    await using service = await startTestService({ agents: places[place] });
    await service.startAgent("agent");
    const { path, running, waiting } = await openBusy(service, "time.sleep(2)\nx = 40");
    await service.api().close();
    await service.startApi();
    const [first, ...rest] = await Promise.all(
      [running, ...waiting].map(async (id) => (await service.ended(id)).status),
    );
    expect([first, ...rest]).toEqual(["succeeded", "succeeded", "succeeded"]);
    const next = await service.send("POST", `${path}/execute`, { code: "print(x + 2)" });
    expect(next.json).toMatchObject({ success: true, stdout: "42\n" });
  },
);

test("the API is away for longer than the lease: the session ends, and the agent has closed it", async () => {
  await using service = await startTestService({
    api: { AIRLOCK_LIVENESS_S: "2", AIRLOCK_LEASE_TTL_S: "6" },
    agents: isLab ? places.gVisor : places.containers,
  });
  const agent = await service.startAgent("agent");
  const busy = await openBusy(service);
  await service.api().close();
  await waitUntil("the agent has closed the sandbox", async () => {
    return (await containersOf(agent.name)).length === 0;
  });
  await service.startApi();
  expect(await fateOf(service, busy)).toEqual(ends("agent_lost", "failed internal_error"));
});

const inGvisor = isLab ? ["in gVisor"] : [];
test.each(inGvisor)("%s, too much memory ends the session with out_of_memory", async () => {
  await using service = await startTestService({ agents: places.gVisor });
  await service.startAgent("agent");
  const busy = await openBusy(
    service,
    "time.sleep(3)\nx = []\nwhile True: x.append(b'x' * 1_000_000)",
  );
  expect(await fateOf(service, busy)).toEqual(ends("out_of_memory", "oom oom"));
});
