import { createHash } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { isLab, waitUntil } from "../../shared/testing/test-file.ts";
import type { AgentProcess } from "../testing/agent-process.ts";
import {
  api,
  folder,
  name,
  nextResult,
  printed,
  start as startAgent,
  useWorld,
} from "../testing/agent-world.ts";
import { type FakeApi, type Received, startFakeApi } from "../testing/fake-api.ts";
import { containersOf } from "../testing/raw-engine.ts";
import { testJob } from "../testing/test-agent.ts";

useWorld();
let way: Record<string, string>;
const start = (to?: FakeApi): Promise<AgentProcess> => startAgent(way, to);

async function stop({ process, exit }: AgentProcess): Promise<void> {
  process.kill("SIGTERM");
  expect(await exit).toBe(0);
}

const forever = testJob.bind(null, {
  code: "import time\nprint('on', flush=True)\ntime.sleep(600)",
});

type Way = [string, Record<string, string>];
const inLab: Way[] = [
  ["with a warm pool of 2", { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "2" }],
];
const first: Way[] = [
  ["without a warm pool", { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "0" }],
  ["forking jobs", { AIRLOCK_CONTAINER_BACKEND: "zygote" }],
];

describe.each(isLab ? inLab : first)("%s", (_name, vars) => {
  beforeEach(() => void (way = vars));

  it("runs a job from its lease to its artifacts and result, and leaves nothing behind", async () => {
    const agent = await start();
    const code = `
import json, os, time
data = json.load(open("/input/data.json"))
print("hello", data["name"])
os.makedirs("/output/plots")
open("/output/plots/a b.bin", "wb").write(bytes(range(256)) * 1000)
time.sleep(1)  # what ends at once is not told as started
json.dump({"sum": sum(data["numbers"])}, open("/output/result.json", "w"))
`;
    const job = testJob({ code, input_json: '{"name":"Ada","numbers":[1,2,3.5]}' });
    api.offer(job);

    const report = await nextResult();
    expect(printed(report)).toBe("hello Ada\n");
    expect(report).toMatchObject({
      status: "succeeded",
      exit_code: 0,
      error: null,
      output_json: '{"sum": 6.5}',
      job_ref: expect.stringMatching(/^default@sha256:[0-9a-f]{64}$/) as string,
      timing: { dep_install_ms: 0, phase_at_exit: "completed" },
      container_backend: vars["AIRLOCK_CONTAINER_BACKEND"],
    });
    const { startup_ms, execution_ms, total_ms } = report.timing;
    expect(startup_ms).toBeGreaterThan(0);
    expect(total_ms).toBeGreaterThanOrEqual(startup_ms + execution_ms - 2);

    const put = api.received.find(({ method }) => method === "PUT") as Received;
    expect(put.path).toBe(`/leases/${job.lease_id}/artifacts/plots%2Fa%20b.bin`);
    const sha256 = createHash("sha256").update(put.bytes).digest("hex");
    expect(put.headers["x-airlock-sha256"]).toBe(sha256);
    const allBytes = Uint8Array.from({ length: 256 }, (_, n) => n);
    expect(put.bytes.equals(Buffer.alloc(256_000, allBytes))).toBe(true);
    expect((await api.request("/started")).json).toEqual({ job_ref: report.job_ref });

    await stop(agent);
    expect(await containersOf(name)).toEqual([]);
    expect(await readdir(join(folder, "spool"))).toEqual([]);
  });

  it("fails a job whose image nobody has, and says so", async () => {
    await start();
    api.offer(testJob({ image: "localhost:9/no/such:1" }));
    expect(await nextResult()).toMatchObject({
      status: "failed",
      error: {
        type: "docker_error",
        message: expect.stringContaining("Image localhost:9/no/such:1 is not on") as string,
        phase: "startup",
      },
    });
    expect(api.count("/release")).toBe(0);
  });

  describe("an agent that is killed", () => {
    it("leaves a container and files that its next start removes", async () => {
      const first = await start();
      api.offer(forever());
      await api.request("/logs");
      first.process.kill("SIGKILL");
      await first.exit;

      await using second = await startFakeApi();
      const agent = await start(second);
      const job = testJob();
      second.offer(job);
      await second.request("/result");
      await waitUntil("the dead agent's folder is gone", async () => {
        return (await readdir(join(folder, "spool"))).length === 1;
      });
      await stop(agent);
      expect(await containersOf(name)).toEqual([]);
      expect(await readdir(join(folder, "spool"))).toEqual([]);
    });
  });

  it("stops with running code: cancelled, reported, removed", async () => {
    const agent = await start();
    api.offer(forever());
    await api.request("/logs");
    await stop(agent);
    expect(await nextResult()).toMatchObject({
      status: "cancelled",
      error: { message: "The agent was stopped while the code ran." },
    });
    expect(await containersOf(name)).toEqual([]);
  });
});
