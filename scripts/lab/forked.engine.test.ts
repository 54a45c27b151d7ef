import { existsSync, readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { testEngine } from "../../agent/testing/engine.ts";
import {
  containersOf,
  deriveImage,
  makeCodeSignal,
  rawEngine,
  removeImages,
} from "../../agent/testing/raw-engine.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import type { EngineHealth, PoolStats } from "../../shared/wire/health.ts";
import { readProcess } from "../setup/engine.ts";
import { childrenOf } from "../testing/machine.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

const zygote = { AIRLOCK_CONTAINER_BACKEND: "zygote" };

test("where jobs cannot be forked, auto gives them containers, and zygote takes none and says why", async () => {
  await using service = await startTestService();
  // Without Python no mother starts from it.
  const broken = await deriveImage((await testEngine()).image, "rm -f /usr/bin/python3*");
  try {
    const vars = { AIRLOCK_MOTHER_IMAGE: broken };
    await service.startAgent("auto", { ...vars, AIRLOCK_CONTAINER_BACKEND: "auto" });
    const record = await service.ended(await service.submit("print(1)"));
    expect(record).toMatchObject({ status: "succeeded" });
    expect(record).not.toHaveProperty("container_backend");
    await vi.waitFor(async () => expect(await forkProblems(service)).toMatch(/python3/), 120_000);
    await service.startAgent("zygote", { ...vars, AIRLOCK_CONTAINER_BACKEND: "zygote" });
    const agents = async () =>
      (await service.send<PoolStats>("GET", "/pool/stats")).json.agents.filter(({ name }) =>
        name.endsWith("zygote"),
      );
    await vi.waitFor(
      async () => expect(await agents()).toMatchObject([{ engine: { available: false } }]),
      120_000,
    );
  } finally {
    await removeImages(broken);
  }
});

test("no job is forked where the probe job finds a fault", async () => {
  const wrongHosts = "def gethostbyname(name): return name";
  const socketModule = "$(python3 -c 'import socket; print(socket.__file__)')";
  const command = `echo '${wrongHosts}' >> ${socketModule}`;
  const faulty = await deriveImage((await testEngine()).image, command);
  try {
    await using service = await startTestService();
    const id = await service.submit("print(1)");
    await service.startAgent("faulty", { ...zygote, AIRLOCK_MOTHER_IMAGE: faulty });
    await vi.waitFor(
      async () => expect(await enginesOf(service)).toMatchObject([{ available: false }]),
      120_000,
    );
    expect(await service.record(id)).toMatchObject({ status: "queued" });
  } finally {
    await removeImages(faulty);
  }
});

async function enginesOf({ send }: TestService): Promise<EngineHealth[]> {
  return (await send<PoolStats>("GET", "/pool/stats")).json.agents.map(({ engine }) => engine);
}

async function forkProblems(service: TestService): Promise<string> {
  return (await enginesOf(service)).map(({ fork_problem }) => fork_problem).join();
}

const endless = "import time; print('so far', flush=True); time.sleep(600)";
const codes = [
  "raise ValueError('no')",
  "import sys; print('x'); sys.exit(3)",
  "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
  "x = bytearray(10 ** 10)",
  "x = []\nwhile True: x.append(bytearray(10 ** 6))",
  endless,
  "import os\nos.kill(1, 9); print('alive')",
  "def f(: pass",
  "open('/output/result.json', 'w').write('[1]')",
];

test("jobs of every outcome end as in containers of their own", async () => {
  const outcomes = await Promise.all(
    ["engine", "zygote"].map(async (backend) => {
      await using service = await startTestService();
      await service.startAgent("outcomes", { AIRLOCK_CONTAINER_BACKEND: backend });
      // On a busy machine code takes long to use up its memory.
      const limit = (code: string) => ({ timeout: code === endless ? 5 : 300 });
      const ids = await Promise.all(codes.map((code) => service.submit(code, {}, limit(code))));
      const ended = await Promise.all(ids.map((id) => service.ended(id)));
      return ended.map(({ status, exit_code, error, stdout, stderr, output }) => {
        const message = error?.message.replace(/[0-9.]+ s/, "N s");
        return { status, exit_code, error: { ...error, message }, stdout, stderr, output };
      });
    }),
  );
  expect(outcomes[1]).toEqual(outcomes[0]);
});

test.each(["mother", "agent", "zygotes"])(
  "after SIGKILL to the %s the job runs once more, and nothing is left",
  async (what) => {
    await using service = await startTestService({
      api: { AIRLOCK_LIVENESS_S: "2", AIRLOCK_LEASE_TTL_S: "4" },
    });
    const signal = makeCodeSignal();
    const agent = await service.startAgent("killed", zygote);
    const id = await service.submit(`${signal.wait}\nprint("done")`);
    await service.untilBegun(id);
    const [mother = ""] = await containersOf(agent.name);
    const { pid, zygotes, groups } = await partsOf(mother);
    const killed = { mother: [pid], agent: [agent.process.pid!], zygotes }[what]!;
    const doomed = what === "zygotes" ? zygotes : [pid, ...zygotes];
    for (const each of killed) process.kill(each, "SIGKILL");
    await waitUntil("what depended on it ends", () => !doomed.some(readProcess));
    const now = what === "agent" ? await service.startAgent("killed", zygote) : agent;
    await service.untilBegun(id, 2);
    await signal.sendTo(agent.name);
    expect(await service.ended(id)).toMatchObject({ status: "succeeded", stdout: "done\n" });
    const { json } = await service.send("GET", `/executions/${id}?view=all`);
    // The next agent may report the crash when the lease has expired already.
    const lost = what === "agent" ? /^(agent_crashed|lease_expired)$/ : /^released$/;
    expect(json["attempts"]).toMatchObject([
      { attempt: 1, agent: agent.name, outcome: expect.stringMatching(lost) as string },
      { attempt: 2, agent: agent.name, outcome: "result", error: null },
    ]);
    await service.expectSucceeded([id], 1);
    const stays = what === "zygotes";
    const isThere = async (): Promise<boolean> => (await containersOf(agent.name)).includes(mother);
    await waitUntil("its mother is removed if it ended", async () => (await isThere()) === stays);
    expect(groups.map(existsSync)).toEqual(groups.map(() => stays));
    expect(await now.end("SIGTERM")).toBe(0);
    expect(await containersOf(agent.name)).toEqual([]);
    // Else the agent took no jobs for seconds.
    expect(await now.stderr).not.toContain("jobs are not forked here");
  },
);

/** The process of a mother, those of its zygotes, and the folders of its control groups. */
async function partsOf(container: string) {
  const pid = (await rawEngine.getContainer(container).inspect()).State.Pid;
  return { pid, zygotes: childrenOf(pid), groups: groupsOf(pid) };
}

/** The folders of a process's control groups on this host, as far as it has version 1. */
function groupsOf(pid: number): string[] {
  const lines = readFileSync(`/proc/${pid}/cgroup`, "utf8").trim().split("\n");
  return lines.flatMap((line) => {
    const [, controller, path] = line.split(":");
    return controller === "memory" ? [`/sys/fs/cgroup/${controller}${path}`] : [];
  });
}
