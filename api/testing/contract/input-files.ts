import { expect } from "vitest";
import type { LeasedJob } from "../../../shared/wire/agent/lease.ts";
import { type ScriptedAgent, sha256 } from "../scripted-agent.ts";
import { body, type Api, expectFault, problemOf } from "./api.ts";
import { uploaded } from "./files.ts";
import type { Row } from "./row.ts";

const utf8 = (content: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(content);
const code = "print(1)";

/** The files that an agent gets for a job, by name. */
async function given(agent: ScriptedAgent, job: LeasedJob): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  for (const { name, size_bytes, sha256: hash } of job.files ?? []) {
    const reply = await agent.get(`/leases/${job.lease_id}/files/${hash}`);
    expect(reply.status).toBe(200);
    expect(Number(reply.headers.get("Content-Length"))).toBe(size_bytes);
    expect(await sha256(utf8(reply.text))).toBe(hash);
    files[name] = reply.text;
  }
  return files;
}

/** What the agent gets for a submitted job. */
async function taken(api: Api, id: string): Promise<Record<string, string>> {
  const agent = api.agent();
  const job = await agent.takeJob();
  expect(job.execution_id).toBe(id);
  return given(agent, job);
}

/** A finished job with an artifact. */
async function jobWith(api: Api, name: string, content: string, fields = {}): Promise<string> {
  const { job_id } = await api.submit(fields);
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  expect((await agent.upload(lease_id, name, content)).status).toBe(200);
  await agent.result(lease_id);
  return job_id;
}

const download = (api: Api, id: string, name: string, query = "") =>
  api.get(`/jobs/${id}/artifacts/${encodeURIComponent(name)}${query}`);

export const inputFileRows: Row[] = [
  {
    rule: "The agent gets a request's files: text, base64, uploaded, artifacts of other jobs, empty ones",
    async check(api) {
      const parent = await jobWith(api, "out/table.csv", "a,b\n");
      const { file_id } = await uploaded(api, "any name", "uploaded");
      const { job_id } = await api.submit({
        files: [
          { name: "text.txt", text: "é\u{feff}" },
          { name: "sub/bytes", base64: btoa("bytes") },
          { name: "sub/uploaded", file_id },
          { name: "table.csv", artifact: { job_id: parent, name: "out/table.csv" } },
          { name: "empty", text: "" },
        ],
      });
      expect(await taken(api, job_id)).toEqual({
        "text.txt": "é\u{feff}",
        "sub/bytes": "bytes",
        "sub/uploaded": "uploaded",
        "table.csv": "a,b\n",
        empty: "",
      });
    },
  },
  {
    rule: "`input_artifacts` lists a job's files with their hashes, and they can be downloaded",
    async check(api) {
      const { file_id, sha256: hash } = await uploaded(api, "a", "uploaded");
      const files = [
        { name: "b.csv", text: "one,two" },
        { name: "a/up.txt", file_id },
      ];
      const { job_id } = await api.submit({ files });
      const { input_artifacts = [] } = await api.record(job_id);
      expect(input_artifacts.map(({ name }) => name)).toEqual([
        "_code.py",
        "_input.json",
        "a/up.txt",
        "b.csv",
      ]);
      expect(input_artifacts.slice(2)).toEqual([
        {
          name: "a/up.txt",
          size_bytes: 8,
          sha256: hash,
          content_type: "text/plain; charset=utf-8",
        },
        {
          name: "b.csv",
          size_bytes: 7,
          sha256: await sha256(utf8("one,two")),
          content_type: "text/csv; charset=utf-8",
        },
      ]);
      expect((await download(api, job_id, "a/up.txt")).text).toBe("uploaded");
      const part = await api.get(`/jobs/${job_id}/artifacts/b.csv`, { Range: "bytes=4-6" });
      expect([part.status, part.text]).toEqual([206, "two"]);
      const listed = await api.get("/executions?fields=input_artifacts&limit=1");
      expect(body(listed)).toMatchObject({ items: [{ input_artifacts }] });
    },
  },
  {
    rule: "Of an output and an input with one name the output is downloaded, with `from=input` the input",
    async check(api) {
      const id = await jobWith(api, "same", "output", { files: [{ name: "same", text: "input" }] });
      expect((await download(api, id, "same")).text).toBe("output");
      expect((await download(api, id, "same", "?from=input")).text).toBe("input");
    },
  },
  {
    rule: "Rerun and fork take the files along, also when the uploaded file was removed",
    async check(api) {
      const { file_id } = await uploaded(api, "a", "uploaded");
      const files = [
        { name: "f", file_id },
        { name: "t", text: "text" },
      ];
      const { job_id } = await api.submit({ files });
      const expected = { f: "uploaded", t: "text" };
      expect(await taken(api, job_id)).toEqual(expected);
      expect((await api.send("DELETE", `/files/${file_id}`)).status).toBe(200);
      for (const [how, sent] of [
        ["rerun", {}],
        ["fork", { code: "print(2)" }],
      ] as const) {
        const reply = await api.post(`/jobs/${job_id}/${how}`, sent);
        expect(await taken(api, (body(reply) as { job_id: string }).job_id)).toEqual(expected);
      }
      expectFault(await api.post("/execute/async", { code, files }), "files.0.file_id");
    },
  },
  {
    rule: "A job keeps the bytes of another job's artifact when that job is removed",
    async check(api) {
      const parent = await jobWith(api, "out", "kept");
      const files = [{ name: "in", artifact: { job_id: parent, name: "out" } }];
      const { job_id } = await api.submit({ files });
      expect((await api.send("DELETE", `/executions/${parent}`)).status).toBe(200);
      expect(await taken(api, job_id)).toEqual({ in: "kept" });
      expect((await download(api, job_id, "in")).text).toBe("kept");
    },
  },
  {
    rule: "Each job of a batch has its own files; a file that is missing refuses its job alone",
    server: "with a long queue",
    async check(api) {
      const { file_id } = await uploaded(api, "a", "uploaded");
      const jobs = [
        { code, files: [{ name: "f", file_id }] },
        { code },
        {
          code,
          files: [
            { name: "b", base64: btoa("\0ÿ") },
            { name: "f", file_id },
          ],
        },
        { code, files: [{ name: "f", file_id: crypto.randomUUID() }] },
      ];
      const answers = body(await api.post("/execute/batch", { jobs })) as {
        jobs: { job_id?: string; errors?: { path: string }[] }[];
      };
      expect(answers.jobs[3]?.errors).toMatchObject([{ path: "files.0.file_id" }]);
      const agent = api.agent();
      const found = [];
      for (const _ of [1, 2, 3]) {
        const job = await agent.takeJob();
        found.push((job.files ?? []).map(({ name, size_bytes }) => [name, size_bytes]));
      }
      expect(found).toEqual([
        [["f", 8]],
        [],
        [
          ["b", 2],
          ["f", 8],
        ],
      ]);
      const atomic = await api.post("/execute/batch", { jobs, atomic: true });
      expectFault(atomic, "jobs.3.files.0.file_id");
    },
  },
  {
    rule: "A repeat with an idempotency key has the same files; text and base64 of the same bytes are the same",
    async check(api) {
      const { file_id } = await uploaded(api, "a", "uploaded");
      const key = { idempotency_key: "files-1" };
      const files = [
        { name: "t", text: "text" },
        { name: "f", file_id },
      ];
      const { job_id } = await api.submit({ ...key, files });
      const same = [{ name: "t", base64: btoa("text") }, files[1]];
      expect((await api.submit({ ...key, files: same })).job_id).toBe(job_id);
      for (const other of [undefined, [files[0]], [{ name: "t", text: "other" }, files[1]]]) {
        const reply = await api.post("/execute/async", { code, ...key, files: other });
        expect(problemOf(reply)).toMatchObject({ code: "conflict", existing_job_id: job_id });
      }
      expect((await api.send("DELETE", `/files/${file_id}`)).status).toBe(200);
      expect((await api.submit({ ...key, files })).job_id).toBe(job_id);
    },
  },
  {
    rule: "An agent gets the files of its own leases alone, while they hold; Range gives a part",
    async check(api) {
      const { job_id } = await api.submit({ files: [{ name: "a", text: "abcdef" }] });
      const agent = api.agent();
      const { lease_id, files = [] } = await agent.takeJob();
      const path = `/leases/${lease_id}/files/${files[0]?.sha256}`;
      const part = await agent.send("GET", path, undefined, { Range: "bytes=2-3" });
      expect([part.status, part.text]).toEqual([206, "cd"]);
      expect((await agent.get(`/leases/${lease_id}/files/${"0".repeat(64)}`)).status).toBe(404);
      const none = crypto.randomUUID();
      expect((await agent.get(path.replace(lease_id, none))).status).toBe(409);
      await agent.result(lease_id);
      expect((await agent.get(path)).status).toBe(409);
      expect((await api.get(`/agent/v1${path}`)).status).toBe(401);
      expect((await api.record(job_id)).input_artifacts).toHaveLength(3);
    },
  },
  {
    rule: "Files above a quarter of the memory limit are 422 while no connected agent mounts files",
    server: "with a long queue",
    async check(api) {
      const { file_id } = await uploaded(api, "large", "x".repeat(900_000));
      const many = Array.from({ length: 20 }, (_, n) => ({ name: `f${n}`, file_id }));
      expect((await api.submit({ files: many })).status).toBe("queued");
      const job = { code, job_type: "small", files: many };
      const agent = api.agent();
      await agent.poll({ free_slots: 0 });
      const reply = await api.post("/execute/async", job);
      expect([reply.status, problemOf(reply).code]).toEqual([422, "files_too_large"]);
    },
  },
];
