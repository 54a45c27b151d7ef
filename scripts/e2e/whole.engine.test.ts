import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startWorker } from "../../api/testing/start-worker.ts";
import { isLab } from "../../shared/testing/tier.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { startTestService, startTestServiceOn, type TestService } from "../testing/test-service.ts";
import type { Json } from "../testing/service-calls.ts";

const everything = `
import json, sys
name = json.load(open("/input/data.json"))["name"]
print("hello", name)
print("warned", file=sys.stderr)
json.dump({"length": len(name), "exact": 1.0}, open("/output/result.json", "w"))
open("plot.png", "wb").write(bytes(range(256)) * 4096)
`;

type Variant = [string, () => Promise<TestService>, Record<string, string>];
const inLab: Variant[] = [
  [
    "api/node.ts, a warm pool of one,",
    startTestService,
    { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "1" },
  ],
];
const first: Variant[] = [
  ["api/node.ts, forked jobs,", startTestService, { AIRLOCK_CONTAINER_BACKEND: "zygote" }],
  [
    "api/worker.ts in workerd, over sqld, agents as by default,",
    () => startTestServiceOn(startWorker),
    { AIRLOCK_WARM_POOL_SIZE: "" },
  ],
];

/** One API, on Node or in workerd, and two real agents on the real engine. */
describe.each(isLab ? inLab : first)("%s with two agents", (_name, start, settings) => {
  let service: TestService;

  beforeAll(async () => {
    service = await start();
    const vars = { AIRLOCK_MAX_WORKERS: "2", ...settings };
    await Promise.all(["first", "second"].map((name) => service.startAgent(name, vars)));
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  const post = async (path: string, body?: Json) => (await service.send("POST", path, body)).json;
  const get = async (path: string) => (await service.send("GET", path)).json;

  /** Resolves once the API has heard of output. */
  async function untilPrinted(id: string): Promise<void> {
    const chunks = { sql: "SELECT 1 FROM output_chunks WHERE execution_id = ?", args: [id] };
    await waitUntil(
      `output of ${id} arrives`,
      async () => (await service.db.execute(chunks)).rows.length > 0,
    );
  }

  test("both agents are in the pool", async () => {
    const stats = await get("/pool/stats");
    expect(stats).toMatchObject({ workers: { max: 4 }, agents: [{ slots: 2 }, { slots: 2 }] });
    expect(await get("/health")).toMatchObject({ status: "healthy", docker_available: true });
  });

  test("runs code to its end: streams, output, an artifact with its hash", async () => {
    const result = await post("/execute", { code: everything, input_data: { name: "Ada" } });
    expect(result).toMatchObject({
      success: true,
      stdout: "hello Ada\n",
      stderr: "warned\n",
      exit_code: 0,
      output: { length: 3, exact: 1 },
    });
    const bytes = Buffer.from(new Uint8Array(256 * 4096).map((_, i) => i % 256));
    const plot = await fetch(`${service.url}/jobs/${String(result["job_id"])}/artifacts/plot.png`);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    expect(plot.headers.get("etag")).toBe(`"${sha256}"`);
    expect(Buffer.from(await plot.arrayBuffer()).equals(bytes)).toBe(true);
  });

  test("shares a burst of jobs between the agents, each run once", async () => {
    const code = "import time; time.sleep(1); print('once')";
    const jobs = await Promise.all(
      Array.from({ length: 8 }, () => post("/execute/async", { code })),
    );
    const results = await Promise.all(
      jobs.map(({ job_id }) => get(`/jobs/${String(job_id)}/result?wait=true&timeout=240`)),
    );
    expect(results.map((result) => result["stdout"])).toEqual(Array(8).fill("once\n"));
    const ids = jobs.map(({ job_id }) => String(job_id));
    const { rows } = await service.db.execute({
      sql: "SELECT DISTINCT agent_id FROM executions WHERE id IN (SELECT value FROM json_each(?))",
      args: [JSON.stringify(ids)],
    });
    expect(rows).toHaveLength(2);
  });

  test("keeps partial output of a timeout, and of a cancelled job", async () => {
    const code =
      "open('part.txt','w').write('kept')\nprint('so far')\nimport time; time.sleep(600)";
    const late = await post("/execute", { code, timeout: 3 });
    expect(late).toMatchObject({
      stdout: "so far\n",
      exit_code: null,
      error: { type: "execution_timeout", phase: "execution" },
    });
    const kept = await fetch(`${service.url}/jobs/${String(late["job_id"])}/artifacts/part.txt`);
    expect(await kept.text()).toBe("kept");

    const { job_id: id } = await post("/execute/async", { code });
    await untilPrinted(String(id));
    await post(`/jobs/${String(id)}/cancel`);
    expect(await get(`/jobs/${String(id)}/result?wait=true&timeout=240&view=full`)).toMatchObject({
      status: "cancelled",
      stdout: "so far\n",
      error: { type: "cancelled" },
      artifacts: [{ name: "part.txt" }],
    });
  });

  test("keeps a failed asynchronous job in the dead letter queue", async () => {
    const { job_id: id } = await post("/execute/async", { code: "{}['missing']" });
    const record = await get(`/jobs/${String(id)}/result?wait=true&timeout=240`);
    expect(record).toMatchObject({ status: "failed", error: { type: "key_error" } });
    const { items } = (await get("/dlq")) as { items: Json[] };
    expect(items.filter((item) => item["job_id"] === id)).toHaveLength(1);
  });
});
