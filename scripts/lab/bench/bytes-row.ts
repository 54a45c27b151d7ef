import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Agent, request } from "undici";
import type { SyncResult } from "../../../shared/wire/executions.ts";
import type { UploadedFile } from "../../../shared/wire/files.ts";
import { type Row, type Series, timed } from "./measure.ts";
import { cpuMsOf, hasDockerCommand, type Service, type World } from "./world.ts";

const MiB = 1024 ** 2;

export const bytes: Row = {
  name: "bytes",
  what: "a file of 90 MiB that a job writes to /output, until its answer; its download; an upload of 200 MiB; a job that is given it for the first and the second time on a host; what each MiB costs agent and API; beside SHA-256 of the same bytes, and docker cp",
  goal: "artifact ≥ 70 MB/s, download ≥ 400, upload ≥ 160, input ≥ 100; agent ≤ 3 × SHA-256, API ≤ 2.5 × (artifact), 1 × (download, input), 2 × (upload)",
  measure: async (world) => {
    await using service = await world.startService({
      config: { container_backend: "zygote", max_artifact_bytes: 256 * MiB },
    });
    await service.warmUp(world.samples(100));
    const folder = mkdtempSync(join(tmpdir(), "airlock-bench-"));
    const dispatcher = new Agent();
    try {
      return await measureBytes(world, service, folder, dispatcher);
    } finally {
      await dispatcher.destroy();
      rmSync(folder, { recursive: true });
    }
  },
  reaches: (of) => {
    const sha = of("SHA-256").p50;
    const costs = (what: string, agent: number, api: number): boolean =>
      (agent === 0 || of(`${what}: agent`).p50 <= agent * sha) &&
      of(`${what}: API`).p50 <= api * sha;
    return (
      of("artifact: rate").p50 >= 70 &&
      of("download: rate").p50 >= 400 &&
      of("upload: rate").p50 >= 160 &&
      of("input, first: rate").p50 >= 100 &&
      costs("artifact", 3, 2.5) &&
      costs("download", 0, 1) &&
      costs("upload", 0, 2) &&
      costs("input, first", 3, 1)
    );
  },
};

async function measureBytes(
  world: World,
  service: Service,
  folder: string,
  dispatcher: Agent,
): Promise<Series[]> {
  const { api, agent } = service.pids();
  const found = new Map<string, Series & { samples: number[] }>();
  const add = (name: string, unit: Series["unit"], sample: number): void => {
    const series = found.get(name) ?? { name, unit, samples: [] };
    series.samples.push(sample);
    found.set(name, series);
  };
  /** Takes one sample of something that moves so many MiB. */
  const sample = async <T>(what: string, size: number, task: () => Promise<T>): Promise<T> => {
    const before = { agent: cpuMsOf(agent), API: cpuMsOf(api) };
    let result: T;
    const ms = await timed(async () => (result = await task()));
    add(`${what}: rate`, "MB/s", (size * MiB) / 1e3 / ms);
    add(`${what}: agent`, "ms", (cpuMsOf(agent) - before.agent) / size);
    add(`${what}: API`, "ms", (cpuMsOf(api) - before.API) / size);
    return result!;
  };
  const output = world.quick ? 4 : 90;
  const upload = world.quick ? 4 : 200;
  const code = `import os\npart = os.urandom(1 << 20)\nwith open("/output/a.bin", "wb") as file:\n    for _ in range(${output}): file.write(part)`;
  const path = join(folder, "a.bin");
  for (let round = 0; round < world.samples(5); round++) {
    const { job_id } = await sample("artifact", output, () => service.execute(code));
    await sample("download", output, async () => {
      const answer = await request(`${service.url}/jobs/${job_id}/artifacts/a.bin`, { dispatcher });
      if (answer.statusCode !== 200) throw new Error(`GET of an artifact: ${answer.statusCode}`);
      for await (const _ of answer.body);
    });
    const content = Buffer.concat(Array.from({ length: upload }, () => randomBytes(MiB)));
    writeFileSync(path, content);
    const cpu = process.cpuUsage();
    createHash("sha256").update(content).digest();
    add("SHA-256", "ms", process.cpuUsage(cpu).user / 1e3 / upload);
    const { file_id } = await sample("upload", upload, () =>
      send(service, dispatcher, path, upload),
    );
    const use = (): Promise<SyncResult> =>
      service.execute("pass", { files: [{ name: "a.bin", file_id }] });
    await sample("input, first", upload, use);
    await sample("input, again", upload, use);
    if (hasDockerCommand)
      await copy(world, path, (ms) => add("docker cp", "MB/s", (upload * MiB) / 1e3 / ms));
  }
  return [...found.values()];
}

async function send(
  { url }: Service,
  dispatcher: Agent,
  path: string,
  size: number,
): Promise<UploadedFile> {
  const answer = await request(`${url}/files?name=a.bin`, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "application/octet-stream", "content-length": String(size * MiB) },
    body: createReadStream(path, { highWaterMark: MiB }),
  });
  const text = await answer.body.text();
  if (answer.statusCode !== 201) throw new Error(`POST /files: ${answer.statusCode} ${text}`);
  return JSON.parse(text) as UploadedFile;
}

/** Copies a file into a container that does not run. */
async function copy(
  { docker, dockerHost, image }: World,
  path: string,
  took: (ms: number) => void,
): Promise<void> {
  const container = await docker.createContainer({ Image: image, Cmd: ["true"] });
  const env = { ...process.env, DOCKER_HOST: dockerHost };
  const run = promisify(execFile);
  try {
    took(await timed(() => run("docker", ["cp", path, `${container.id}:/a.bin`], { env })));
  } finally {
    await container.remove();
  }
}
