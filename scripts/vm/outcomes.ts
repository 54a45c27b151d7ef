import { deepStrictEqual } from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import type { Checks } from "./checks.ts";
import type { Service } from "./service.ts";

const SUCCEEDS = `
import json, sys
name = json.load(open("/input/data.json"))["name"]
print("hello", name)
print("warned", file=sys.stderr)
json.dump({"length": len(name)}, open("/output/result.json", "w"))
open("note.txt", "w").write("kept")
`;

/** The limits that the kernel holds for the job: cgroup v2's files, and the status of the process. */
const LIMITS = `
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
def first(name): return open("/sys/fs/cgroup/" + name).read().split()[0]
json.dump({
    "memory": first("memory.max"), "swap": first("memory.swap.max"),
    "cpu": first("cpu.max"), "processes": first("pids.max"), "uid": os.getuid(),
    "rights": [status[name].strip() for name in ["CapEff", "CapBnd", "NoNewPrivs", "Seccomp"]],
    "networks": os.listdir("/sys/class/net"),
}, open("/output/result.json", "w"))
`;

/** The longest that the API accepts: an emulated container may take minutes to start. */
const STARTUP_TIMEOUT_S = 600;
const REFUSED_FOR_MS = 600_000;
const NO_RIGHTS = "0000000000000000";

/** Jobs of every outcome, and with `limits` what holds them in. */
export async function checkOutcomes(
  { check }: Pick<Checks, "check">,
  service: Service,
  { limits = true } = {},
): Promise<void> {
  const ran = (code: string, more?: object) => run(service, code, more);

  await check("a job succeeds: input, streams, output and an artifact", async () => {
    const job = await ran(SUCCEEDS, { input_data: { name: "Ada" } });
    deepStrictEqual(pick(job, "status", "stdout", "stderr", "output"), {
      status: "succeeded",
      stdout: "hello Ada\n",
      stderr: "warned\n",
      output: { length: 3 },
    });
    const { text } = await service.get(`/jobs/${String(job["job_id"])}/artifacts/note.txt`);
    deepStrictEqual(text, "kept");
  });
  await check("a job fails with its error", async () => {
    const job = await ran("raise ValueError('no')");
    deepStrictEqual(outcome(job), { status: "failed", type: "value_error" });
  });
  await check("a timeout keeps what was printed", async () => {
    const job = await ran("print('begun', flush=True)\nwhile True: pass", { timeout: 5 });
    deepStrictEqual(outcome(job), { status: "timeout", type: "execution_timeout" });
    deepStrictEqual(job["stdout"], "begun\n");
  });
  await check("a job out of memory ends as oom", async () => {
    const job = await ran("x = bytearray(1 << 30)");
    deepStrictEqual(outcome(job), { status: "oom", type: "oom" });
  });
  await check("a running job is cancelled", async () => {
    const id = await submit(service, "import time\ntime.sleep(600)");
    while ((await service.get(`/jobs/${id}`)).json["status"] !== "running") await sleep(500);
    await service.post(`/jobs/${id}/cancel`, {});
    deepStrictEqual((await result(service, id))["status"], "cancelled");
  });
  if (!limits) return;
  await check("the kernel holds the job's limits, and it has no rights", async () => {
    const { output } = await ran(LIMITS);
    deepStrictEqual(output, {
      memory: String(512 * 1024 * 1024),
      swap: "0",
      cpu: "100000",
      processes: "128",
      uid: 1000,
      rights: [NO_RIGHTS, NO_RIGHTS, "1", "2"],
      networks: ["lo"],
    });
  });
}

/** Runs code to its end and returns the whole record, with the job's id. */
export async function run(
  service: Pick<Service, "get" | "post">,
  code: string,
  more: object = {},
): Promise<Record<string, unknown>> {
  const job_id = await submit(service, code, more);
  return { ...(await result(service, job_id)), job_id };
}

/**
 * Sends a job again while it is refused with 503, as a client does: emulated, an engine that does not answer its probe in
 * time opens the agent's breaker.
 */
export async function submit(
  service: Pick<Service, "post">,
  code: string,
  more: object = {},
): Promise<string> {
  const deadline = performance.now() + REFUSED_FOR_MS;
  for (;;) {
    const body = { code, startup_timeout: STARTUP_TIMEOUT_S, ...more };
    const { status, text, json } = await service.post("/execute/async", body);
    if (status === 202) return String(json["job_id"]);
    if (status !== 503 || performance.now() > deadline) {
      throw new Error(`the submission was answered ${status}: ${text}`);
    }
    await sleep(5000);
  }
}

/** Waits until the job has ended. */
export async function result(
  service: Pick<Service, "get">,
  id: string,
): Promise<Record<string, unknown>> {
  for (;;) {
    const path = `/jobs/${id}/result?wait=true&timeout=60&view=full`;
    const { status, text, json } = await service.get(path);
    if (status === 200) return json;
    if (status !== 408) throw new Error(`job ${id} was answered ${status}: ${text}`);
  }
}

function outcome(job: Record<string, unknown>): object {
  return { status: job["status"], type: (job["error"] as { type?: string } | null)?.type };
}

function pick(job: Record<string, unknown>, ...names: string[]): object {
  return Object.fromEntries(names.map((name) => [name, job[name]]));
}
