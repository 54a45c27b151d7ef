import { randomInt } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../setup/engine/connect.ts";
import { random } from "../soak/random.ts";
import { childrenOf } from "../testing/children-of.ts";
import { copyBaseImage } from "../testing/copy-base-image.ts";
import type { Acknowledged } from "../testing/ledger.ts";
import { needs } from "../testing/needs.ts";
import { makePrivateDockerd, type PrivateDockerd } from "../testing/private-dockerd.ts";
import { startTestService, type TestAgent, type TestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { groupsOfJobs, tracesOf } from "./traces.ts";

const machine = process.env["AIRLOCK_DOCKER_HOST"] || "unix:///var/run/docker.sock";
const seed = Number(process.env["TEST_SEED"] ?? randomInt(2 ** 31));
const { between } = random(seed);

const [rounds, jobsOfEach] = [2, 4];
const code = `
import json, time
data = json.load(open("/input/data.json"))
large = open("/input/large.txt").read()
time.sleep(data["seconds"])
print(data["mark"], len(large), end="")
`;
const large = "x".repeat(300_000);

describe("forked jobs, while what they depend on is killed at any instant", needs("root"), () => {
  let dockerd: PrivateDockerd;
  let engine: Docker;
  let service: TestService;
  let agent: TestAgent;
  const acknowledged: Acknowledged[] = [];
  /** Ids of containers that mothers were, or are. */
  const mothers = new Set<string>();

  const startAgent = async (): Promise<void> => {
    agent = await service.startAgent("forks", {
      AIRLOCK_DOCKER_HOST: dockerd.host,
      AIRLOCK_CONTAINER_BACKEND: "zygote",
      AIRLOCK_MAX_WORKERS: "2",
    });
  };

  beforeAll(async () => {
    process.stdout.write(`TEST_SEED=${seed}\n`);
    dockerd = makePrivateDockerd();
    await dockerd.start();
    await copyBaseImage(machine, dockerd.host);
    engine = connect(dockerd.host);
    service = await startTestService({ api: { ...shortLeases, AIRLOCK_LEASE_TTL_S: "60" } });
    await startAgent();
  });

  afterAll(async () => {
    await service?.[Symbol.asyncDispose]();
    await dockerd[Symbol.asyncDispose]();
  });

  /** The process of the mother; undefined while there is none. */
  async function motherPid(): Promise<number | undefined> {
    const filters = { label: [`io.airlock.owner=${agent.name}`] };
    const found = await engine.listContainers({ filters });
    const mother = found.find(({ Labels }) => Labels["io.airlock.lease"]?.startsWith("mother-"));
    if (!mother) return undefined;
    mothers.add(mother.Id);
    return (await engine.getContainer(mother.Id).inspect()).State.Pid || undefined;
  }

  async function killMother(): Promise<void> {
    const pid = await motherPid();
    if (pid !== undefined) kill(pid);
  }

  async function killZygotes(): Promise<void> {
    const pid = await motherPid();
    // Whatever starts just then is killed too.
    if (pid !== undefined) childrenOf(pid).forEach(kill);
  }

  async function killAgent(): Promise<void> {
    agent.process.kill("SIGKILL");
    await agent.exit;
  }

  /** Each kills something, and starts again what does not start by itself. */
  const faults: Record<string, () => Promise<void>> = {
    "a zygote": killZygotes,
    "the mother": killMother,
    "the agent": async () => {
      await killAgent();
      await startAgent();
    },
    "the engine": async () => {
      await dockerd.end("SIGKILL");
      await dockerd.start();
    },
    "the agent and the mother": async () => {
      await Promise.all([killAgent(), killMother()]);
      await startAgent();
    },
    "agent, engine and mother": async () => {
      const pid = await motherPid();
      await Promise.all([killAgent(), dockerd.end("SIGKILL")]);
      if (pid !== undefined) kill(pid);
      await dockerd.start();
      await startAgent();
    },
  };

  const cases = Array.from({ length: rounds }, (_, round) =>
    Object.keys(faults).map((what) => [what, round] as const),
  ).flat();
  test.each(cases)(
    "%s killed: every job has one result, and nothing unused is left, round %i",
    async (what, round) => {
      const foreign = await startForeign(`foreign-${round}-${what.replaceAll(/\W+/g, "-")}`);
      const before = await foreignState(foreign);
      try {
        const ids = await submitJobs(`${what} ${round}`);
        await motherPid();
        await sleep(between(0, 1500));
        await faults[what]!();
        const ended = await Promise.all(ids.map((id) => service.ended(id)));
        const failed = ended.filter(({ status }) => status !== "succeeded");
        expect(
          failed.map(({ error }) => error),
          `seed ${seed}`,
        ).toEqual([]);
        expect(await foreignState(foreign)).toEqual({
          ...before,
          // An engine that starts ends the containers that it finds.
          Running: !what.includes("engine"),
        });
        await expect
          .poll(() => leftovers(foreign.id), { timeout: 60_000, interval: 200 })
          .toEqual([]);
      } finally {
        await foreign.remove({ force: true });
      }
    },
  );

  /** Another program's container and volume. */
  async function startForeign(name: string): Promise<Docker.Container> {
    const [image] = await engine.listImages();
    const container = await engine.createContainer({
      name,
      Image: image!.Id,
      Cmd: ["sleep", "3600"],
      HostConfig: { Binds: [`${name}:/kept`], NetworkMode: "none" },
    });
    await container.start();
    return container;
  }

  async function foreignState(container: Docker.Container) {
    const { Running, StartedAt } = (await container.inspect()).State;
    return { Running, StartedAt };
  }

  async function submitJobs(name: string): Promise<string[]> {
    const ids: string[] = [];
    for (let n = 0; n < jobsOfEach; n++) {
      const mark = `${name} ${n}`;
      const files = [{ name: "large.txt", text: large }];
      const id = await service.submit(code, { mark, seconds: between(0, 1) }, { files });
      ids.push(id);
      acknowledged.push({ id, ends: ["succeeded"], stdout: `${mark} ${large.length}` });
    }
    return ids;
  }

  /** Containers, and traces of containers, that must not exist while no job runs. */
  async function leftovers(foreignId: string): Promise<string[]> {
    const pid = await motherPid();
    const all = await engine.listContainers({ all: true });
    const unknown = all.filter(({ Id }) => Id !== foreignId && !mothers.has(Id));
    const alive = all.filter(({ Id, State }) => mothers.has(Id) && State === "running");
    const dead = [...mothers].filter((id) => !alive.some(({ Id }) => Id === id));
    return [
      ...unknown.map(({ Id, Names }) => `container ${Names.join()} ${Id}`),
      ...all.filter(({ Id }) => dead.includes(Id)).map(({ Id }) => `mother ${Id}`),
      ...alive.slice(1).map(({ Id }) => `a second mother ${Id}`),
      ...tracesOf(new Set(dead)),
      ...(pid === undefined ? [] : groupsOfJobs(pid)),
    ];
  }

  test("at the end the books balance, and only volumes stay", async () => {
    const ledger = await service.ledger(acknowledged);
    expect(ledger.faults, `seed ${seed}`).toEqual([]);
    agent.process.kill("SIGTERM");
    expect(await agent.exit).toBe(0);
    expect(await engine.listContainers({ all: true })).toEqual([]);
    const { Volumes } = await engine.listVolumes();
    const ours = Volumes.map(({ Name }) => Name).filter((name) => !name.startsWith("foreign-"));
    expect(ours.map((name) => name.replace(/[^-]*$/, "")).sort()).toEqual([
      "airlock-rootfs-",
      "airlock-bundles-",
    ]);
    expect(Volumes.length - ours.length).toBe(rounds * Object.keys(faults).length);
    await dockerd.end("SIGTERM");
    const traces = () => dockerd.traces().filter((trace) => !/containerd-shim/.test(trace));
    await expect.poll(traces, { timeout: 60_000 }).toEqual([`${dockerd.dir}/data`]);
  });
});

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
