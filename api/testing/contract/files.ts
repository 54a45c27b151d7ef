import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { expect } from "vitest";
import { FilePage, UploadedFile } from "../../../shared/wire/files.ts";
import type { LeasedJob } from "../../../shared/wire/leases.ts";
import { type ScriptedAgent, sha256 } from "../scripted-agent.ts";
import {
  type Api,
  body,
  expectFault,
  maxFileBytes,
  maxFilesBytes,
  nobody,
  on,
  problemOf,
  type Row,
  test,
  working,
} from "./api.ts";

const utf8 = (content: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(content);

const send = (api: Api, name: string, content: string, headers: Record<string, string> = {}) =>
  api.send("POST", `/files?name=${encodeURIComponent(name)}`, { body: utf8(content), headers });

export async function uploaded(api: Api, name: string, content: string): Promise<UploadedFile> {
  const reply = await send(api, name, content);
  expect(reply.status).toBe(201);
  return UploadedFile.parse(body(reply));
}

/** Sends the head and the first bytes of an upload, and then nothing or the end of the connection. */
async function raw(api: Api, head: string[], content: string): Promise<string> {
  const { hostname, port } = new URL(api.url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  const answer = text(socket);
  const lines = ["POST /files?name=raw HTTP/1.1", `Host: ${hostname}:${port}`, ...head];
  socket.end(`${lines.join("\r\n")}\r\n\r\n${content}`);
  return answer.catch(() => "");
}

const stored = async (api: Api, query = "limit=1000"): Promise<FilePage> =>
  FilePage.parse(body(await api.get(`/files?${query}`)));

/** Names that no file may have, whoever gives them. */
const badNames = ["", "../x", "/x", "a/../b", "a//b", "a\\b", "a\nb", "a\0b", "x".repeat(1025)];

const idsOf = (page: FilePage) => page.items.map(({ file_id }) => file_id);

export const fileRows: Row[] = [
  test("POST /files stores the body and answers with its id, size, hash, type and time of expiry", async (api) => {
    const content = "a,b\n1,é\n";
    const reply = await send(api, "sub/table.csv", content);
    expect(reply.status).toBe(201);
    const file = UploadedFile.parse(body(reply));
    expect(reply.headers.get("Location")).toBe(`/files/${file.file_id}`);
    expect(file).toMatchObject({
      name: "sub/table.csv",
      size_bytes: 9,
      sha256: await sha256(utf8(content)),
      content_type: "text/csv; charset=utf-8",
    });
    const keptMs = Date.parse(file.expires_at) - Date.parse(file.created_at);
    expect(keptMs).toBe(24 * 3_600_000);
  }),
  test("GET /files/{id} is the file, with type, length, hash and name; HEAD the headers; Range a part", async (api) => {
    const { file_id, sha256: hash } = await uploaded(api, "sub/note.txt", "twelve bytes");
    const path = `/files/${file_id}`;
    const reply = await api.get(path);
    const expected = {
      "content-type": "text/plain; charset=utf-8",
      "content-length": "12",
      etag: `"${hash}"`,
      "content-disposition": `attachment; filename="note.txt"; filename*=UTF-8''note.txt`,
    };
    expect([reply.status, reply.text]).toEqual([200, "twelve bytes"]);
    expect(Object.fromEntries(reply.headers)).toMatchObject(expected);
    const head = await api.send("HEAD", path);
    expect([head.status, head.text]).toEqual([200, ""]);
    expect(Object.fromEntries(head.headers)).toMatchObject(expected);
    const part = await api.get(path, { Range: "bytes=7-10" });
    expect([part.status, part.text]).toEqual([206, "byte"]);
    expect((await api.get(path, { Range: "bytes=12-" })).status).toBe(416);
    expect((await api.get(path, { "If-None-Match": `"${hash}"` })).status).toBe(304);
  }),
  test("An upload that is sent again with its Idempotency-Key stores one file; a different upload with that key is 409", async (api) => {
    const key = { "Idempotency-Key": crypto.randomUUID() };
    const upload = (name: string, content: string) => send(api, name, content, key);
    const first = await upload("again.txt", "content");
    const again = await upload("again.txt", "content");
    expect([first.status, again.status, again.text]).toEqual([201, 201, first.text]);
    const { file_id } = UploadedFile.parse(body(first));
    for (const other of [
      await upload("other.txt", "content"),
      await upload("again.txt", "CONTENT"),
    ]) {
      expect(problemOf(other)).toMatchObject({
        status: 409,
        code: "conflict",
        detail: `The idempotency key was used for another file, ${file_id}. Use a new key.`,
      });
    }
    const names = (await stored(api)).items.map(({ name }) => name);
    expect(names.filter((name) => name === "again.txt")).toHaveLength(1);
    expect(names).not.toContain("other.txt");
    expect((await send(api, "x", "", { "Idempotency-Key": "é" })).status).toBe(400);
  }),
  test("An empty file is a file", async (api) => {
    const { file_id, size_bytes } = await uploaded(api, "empty", "");
    expect(size_bytes).toBe(0);
    const reply = await api.get(`/files/${file_id}`);
    expect([reply.status, reply.text]).toEqual([200, ""]);
  }),
  test("A file whose SHA-256 is announced is stored only if it has it", async (api) => {
    const before = await stored(api);
    const right = await sha256(utf8("content"));
    for (const [hash, status] of [
      [right, 201],
      [right.toUpperCase(), 201],
      ["0".repeat(64), 400],
      ["0".repeat(63), 400],
      ["", 400],
    ] as const) {
      const reply = await send(api, "hashed", "content", { "X-Airlock-SHA256": hash });
      expect([hash, reply.status]).toEqual([hash, status]);
    }
    expect((await stored(api)).count).toBe(before.count + 2);
  }),
  {
    rule: "An upload without Content-Length is 411, before its bytes are read",
    // A proxy may wait for the whole body and then announce its length.
    only: { on: "node", why: "the edge may announce the length itself" },
    async check(api) {
      const before = await stored(api);
      const answer = await raw(api, ["Transfer-Encoding: chunked"], "5\r\nabcde\r\n0\r\n\r\n");
      expect(answer).toMatch(/^HTTP\/1\.1 411 /);
      expect(answer).toContain('"code":"length_required"');
      expect((await stored(api)).count).toBe(before.count);
    },
  },
  test("An upload larger than `max_file_bytes` is 413; one of exactly that size is stored", async (api) => {
    const most = "x".repeat(maxFileBytes);
    expect((await send(api, "most", most)).status).toBe(201);
    const reply = await send(api, "more", `${most}x`);
    expect([reply.status, problemOf(reply).code]).toEqual([413, "too_large"]);
    expect(problemOf(reply).detail).toContain(`${maxFileBytes} bytes (max_file_bytes)`);
  }),
  ...on("with a short queue", [
    test("Uploads that would give all files more than `max_files_bytes` are 503, also if they come at once; a single file of more is 413", async (api) => {
      const { file_id } = await uploaded(api, "first", "x".repeat(maxFilesBytes - 500));
      const replies = await Promise.all(
        Array.from({ length: 6 }, (_, n) => send(api, `at-once-${n}`, "x".repeat(300))),
      );
      const refused = replies.filter(({ status }) => status === 503);
      expect(replies.map(({ status }) => status).filter((status) => status === 201)).toHaveLength(
        1,
      );
      expect(refused).toHaveLength(5);
      for (const reply of refused) {
        expect(problemOf(reply).detail).toMatch(/2000 bytes.*max_files_bytes.*DELETE \/files/);
        expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
      }
      expect((await send(api, "rest", "x".repeat(200))).status).toBe(201);
      const larger = await send(api, "larger", "x".repeat(maxFilesBytes + 1));
      expect([larger.status, problemOf(larger).code]).toEqual([413, "too_large"]);
      expect(problemOf(larger).detail).toContain("max_files_bytes");

      expect((await stored(api)).count).toBe(3);
      expect((await api.get(`/files/${file_id}`)).status).toBe(200);
      await api.send("DELETE", `/files/${file_id}`);
      expect((await send(api, "too early", "x")).status).toBe(503);
    }),
  ]),
  test("An upload that breaks off leaves nothing", async (api) => {
    const before = await stored(api);
    await raw(api, ["Content-Length: 1000"], "only a part");
    expect((await uploaded(api, "next", "whole")).size_bytes).toBe(5);
    expect((await stored(api)).count).toBe(before.count + 1);
  }),
  test("A file needs a name, which is a path below a folder", async (api) => {
    expectFault(await api.send("POST", "/files", { body: utf8("x") }), "name");
    for (const name of [...badNames, ".", "/etc/passwd", "a/"]) {
      expectFault(await send(api, name, "x"), "name");
    }
  }),
  test("An upload as a form is 400, and the answer shows how to send the file", async (api) => {
    const form = { "Content-Type": "multipart/form-data; boundary=x" };
    const bytes = utf8('--x\r\nContent-Disposition: form-data; name="f"\r\n\r\na\r\n--x--\r\n');
    for (const target of ["/files", "/files?name=a"]) {
      const reply = await api.send("POST", target, { body: bytes, headers: form });
      expect([reply.status, problemOf(reply).detail]).toEqual([
        400,
        expect.stringContaining("--data-binary"),
      ]);
    }
  }),
  test("GET /files lists files, newest first, in pages; `before` continues after the last one", async (api) => {
    const ids: string[] = [];
    for (const n of [1, 2, 3]) ids.unshift((await uploaded(api, `page-${n}`, "x")).file_id);
    const first = await stored(api, "limit=2");
    expect(first).toMatchObject({ limit: 2, offset: 0, count: 2, has_more: true });
    expect(idsOf(first)).toEqual(ids.slice(0, 2));
    await uploaded(api, "newer", "x");
    expect(idsOf(await stored(api, `limit=1&before=${ids[1]}`))).toEqual([ids[2]]);
    expect(idsOf(await stored(api, "limit=2&offset=1"))).toEqual(ids.slice(0, 2));
  }),
  test("DELETE /files/{id} removes a file", async (api) => {
    const { file_id } = await uploaded(api, "gone", "x");
    const path = `/files/${file_id}`;
    const reply = await api.send("DELETE", path);
    expect([reply.status, body(reply)]).toEqual([200, { file_id, deleted: true }]);
    for (const method of ["GET", "HEAD", "DELETE"]) {
      expect((await api.send(method, path)).status).toBe(404);
    }
    expect((await stored(api)).items.map((file) => file.file_id)).not.toContain(file_id);
  }),
];

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

/** A finished job with these artifacts. */
async function finishedJobWith(
  api: Api,
  files: Record<string, string>,
  fields = {},
): Promise<string> {
  const { agent, job_id, lease_id } = await working(api, fields);
  for (const [name, content] of Object.entries(files)) {
    expect((await agent.upload(lease_id, name, content)).status).toBe(200);
  }
  await agent.result(lease_id);
  return job_id;
}

const described = async (name: string, content: string, content_type: string) => ({
  name,
  size_bytes: utf8(content).length,
  sha256: await sha256(utf8(content)),
  content_type,
});

const download = (api: Api, id: string, name: string, query = "") =>
  api.get(`/jobs/${id}/artifacts/${encodeURIComponent(name)}${query}`);

export const inputFileRows: Row[] = [
  test("The agent gets a request's files: text, base64, uploaded, artifacts of other jobs, empty ones", async (api) => {
    const parent = await finishedJobWith(api, { "out/table.csv": "a,b\n" });
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
  }),
  test("`input_artifacts` lists a job's files with their hashes, and they can be downloaded", async (api) => {
    const { file_id } = await uploaded(api, "a", "uploaded");
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
      await described("a/up.txt", "uploaded", "text/plain; charset=utf-8"),
      await described("b.csv", "one,two", "text/csv; charset=utf-8"),
    ]);
    expect((await download(api, job_id, "a/up.txt")).text).toBe("uploaded");
    const part = await api.get(`/jobs/${job_id}/artifacts/b.csv`, { Range: "bytes=4-6" });
    expect([part.status, part.text]).toEqual([206, "two"]);
    const listed = await api.get("/executions?fields=input_artifacts&limit=1");
    expect(body(listed)).toMatchObject({ items: [{ input_artifacts }] });
  }),
  test("Of an output and an input with one name the output is downloaded, with `from=input` the input", async (api) => {
    const given = { files: [{ name: "same", text: "input" }] };
    const id = await finishedJobWith(api, { same: "output" }, given);
    expect((await download(api, id, "same")).text).toBe("output");
    expect((await download(api, id, "same", "?from=input")).text).toBe("input");
  }),
  test("Rerun and fork take the files along, also when the uploaded file was removed", async (api) => {
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
  }),
  test("A job keeps the bytes of another job's artifact when that job is removed", async (api) => {
    const parent = await finishedJobWith(api, { out: "kept" });
    const files = [{ name: "in", artifact: { job_id: parent, name: "out" } }];
    const { job_id } = await api.submit({ files });
    expect((await api.send("DELETE", `/executions/${parent}`)).status).toBe(200);
    expect(await taken(api, job_id)).toEqual({ in: "kept" });
    expect((await download(api, job_id, "in")).text).toBe("kept");
  }),
  ...on("with a long queue", [
    test("Each job of a batch has its own files; a file that is missing refuses its job alone", async (api) => {
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
    }),
  ]),
  test("A repeat with an idempotency key has the same files; text and base64 of the same bytes are the same", async (api) => {
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
  }),
  test("An agent gets the files of its own leases alone, while they hold; Range gives a part", async (api) => {
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
  }),
  ...on("with a long queue", [
    test("Files above a quarter of the memory limit are 422 while no connected agent mounts files", async (api) => {
      const { file_id } = await uploaded(api, "large", "x".repeat(900_000));
      const many = Array.from({ length: 20 }, (_, n) => ({ name: `f${n}`, file_id }));
      expect((await api.submit({ files: many })).status).toBe("queued");
      const job = { code, job_type: "small", files: many };
      await api.connected({ free_slots: 0 });
      const reply = await api.post("/execute/async", job);
      expect([reply.status, problemOf(reply).code]).toEqual([422, "files_too_large"]);
    }),
  ]),
];

const textFile = (name: string) => ({ name, text: "x" });

/** Files of a request that are refused, at this path. */
const refusedFiles: [path: string, ...files: object[]][] = [
  ...[
    "data.json",
    "data.json/a",
    "_requirements.txt",
    "../code/main.py",
    "/etc/passwd",
    "a//b",
    "a\0",
    "a\nb",
    "a\u202egnp",
    "a\ud800",
    "",
    `${"a/".repeat(512)}b`,
    "a".repeat(256),
  ].map((name): [string, object] => ["files.0.name", textFile(name)]),
  ["files.1.name", textFile("a"), textFile("a")],
  ["files.1.name", textFile("a"), textFile("a/b")],
  ["files.1.name", textFile("a/b/c"), textFile("a/b")],
  ["files.0", { name: "a" }],
  ["files.0", { ...textFile("a"), base64: "" }],
  ["files.0.base64", { name: "a", base64: "!" }],
  ["files.0.file_id", { name: "a", file_id: "x" }],
  ["files.0.mode", { ...textFile("a"), mode: 1 }],
  ["files.1.file_id", textFile("a"), { name: "b", file_id: nobody }],
  ["files.0.artifact", { name: "b", artifact: { job_id: nobody, name: "x" } }],
  ["files", ...Array.from({ length: 101 }, (_, n) => textFile(`f${n}`))],
];

export const refusedFileRows: Row[] = [
  test("Files of a request whose name is reserved, taken or no path below /input, whose content is missing or double, or that do not exist are 400 at their path", async (api) => {
    const stored = await api.newest();
    for (const [path, ...files] of refusedFiles) {
      for (const where of ["/execute", "/execute/async"]) {
        expectFault(await api.post(where, { code, files }), path);
      }
    }
    expect(await api.newest()).toEqual(stored);
  }),
  test("A request may have 100 files", async (api) => {
    const most = Array.from({ length: 100 }, (_, n) => textFile(`f${n}`));
    expect((await api.submit({ files: most })).status).toBe("queued");
  }),
  test("An artifact of a running job is not there yet", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    expect((await agent.upload(lease_id, "out", "x")).status).toBe(200);
    const files = [{ name: "in", artifact: { job_id, name: "out" } }];
    expectFault(await api.post("/execute/async", { code, files }), "files.0.artifact");
  }),
];

const path = (id: string, name: string): string =>
  `/jobs/${id}/artifacts/${encodeURIComponent(name)}`;

export const artifactRows: Row[] = [
  test("An artifact is served with its type, length, hash and name; HEAD serves only the headers", async (api) => {
    const id = await finishedJobWith(api, { "table.csv": "a,b\n1,é\n" });
    const reply = await api.get(path(id, "table.csv"));
    expect(reply.status).toBe(200);
    expect(reply.text).toBe("a,b\n1,é\n");
    const expected = {
      "content-type": "text/csv; charset=utf-8",
      "content-length": "9",
      etag: `"${await sha256(utf8("a,b\n1,é\n"))}"`,
      "content-disposition": `attachment; filename="table.csv"; filename*=UTF-8''table.csv`,
    };
    expect(Object.fromEntries(reply.headers)).toMatchObject(expected);
    const head = await api.send("HEAD", path(id, "table.csv"));
    expect(head.status).toBe(200);
    expect(head.text).toBe("");
    expect(Object.fromEntries(head.headers)).toMatchObject(expected);
    expect((await api.send("HEAD", path(id, "none.csv"))).status).toBe(404);
  }),
  test("An artifact is no part of a page: browsers may not run it, style with it or frame it", async (api) => {
    const active = ["a.js", "a.mjs", "a.ecma", "a.css"];
    const id = await finishedJobWith(
      api,
      Object.fromEntries([...active, "a.html"].map((name) => [name, "alert(1)"])),
    );
    for (const name of active) {
      const { status, headers } = await api.get(path(id, name));
      expect(status).toBe(200);
      expect(Object.fromEntries(headers)).toMatchObject({
        "content-type": "application/octet-stream",
        "content-security-policy": "sandbox",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
      });
    }
    const statuses = ["script", "style", "worker", "serviceworker", "iframe", "object"].map(
      async (use) => (await api.get(path(id, "a.html"), { "Sec-Fetch-Dest": use })).status,
    );
    expect(await Promise.all(statuses)).toEqual(Array(6).fill(403));
    for (const use of ["empty", "image", "document"])
      expect((await api.get(path(id, "a.html"), { "Sec-Fetch-Dest": use })).status).toBe(200);
  }),
  test("If-None-Match with the current ETag is 304 without a body: alone, in a list, weak, or *", async (api) => {
    const id = await finishedJobWith(api, { "a.bin": "content" });
    const etag = (await api.get(path(id, "a.bin"))).headers.get("ETag") ?? "";
    for (const given of [etag, `"x", ${etag}`, `W/${etag}`, `"x" ,W/"y",  W/${etag}`, "*"]) {
      for (const method of ["GET", "HEAD"]) {
        const reply = await api.send(method, path(id, "a.bin"), {
          headers: { "If-None-Match": given },
        });
        expect([reply.status, reply.text, reply.headers.get("ETag")]).toEqual([304, "", etag]);
        expect(reply.headers.get("Cache-Control")).toBe("private, no-cache, no-transform");
      }
    }
    for (const given of ['"x"', etag.slice(1, -1), "", '"'])
      expect((await api.get(path(id, "a.bin"), { "If-None-Match": given })).status).toBe(200);
    expect((await api.get(path(id, "b.bin"), { "If-None-Match": "*" })).status).toBe(404);
  }),
  test("A nested artifact is found under its name with slashes plain or encoded", async (api) => {
    const id = await finishedJobWith(api, { "sub/dir/x.txt": "x", "sub/y.txt": "y" });
    for (const name of ["sub/dir/x.txt", "sub%2Fdir%2Fx.txt", "sub%2fdir/x.txt"]) {
      const reply = await api.get(`/jobs/${id}/artifacts/${name}`);
      expect([reply.status, reply.text]).toEqual([200, "x"]);
      expect(reply.headers.get("Content-Disposition")).toContain('filename="x.txt"');
    }
    for (const name of ["sub", "sub/", "sub//y.txt", "y.txt", "sub/dir"]) {
      expect((await api.get(`/jobs/${id}/artifacts/${name}`)).status).toBeGreaterThanOrEqual(400);
    }
  }),
  test("An artifact may have any name: other scripts, spaces, marks, what looks encoded, 255 letters", async (api) => {
    const names = [
      "naïve café.txt",
      "データ.csv",
      "данные.json",
      "بيانات.txt",
      "plot 😀.png",
      "e\u0301 combining.txt",
      "a b+c&d=e#f?g;h,i.txt",
      "100%.txt",
      "%41.txt",
      "%2e%2e%2fx",
      'quote".txt',
      "semi;colon'.txt",
      "-rf",
      "...",
      "x".repeat(255),
    ];
    const id = await finishedJobWith(api, Object.fromEntries(names.map((name) => [name, name])));
    for (const name of names) {
      const reply = await api.get(path(id, name));
      expect([reply.status, reply.text]).toEqual([200, name]);
      const disposition = reply.headers.get("Content-Disposition") ?? "";
      const exact = /^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''(\S+)$/;
      expect(decodeURIComponent(exact.exec(disposition)?.[1] ?? "")).toBe(name);
    }
    const { artifacts = [] } = await api.record(id);
    expect(artifacts.map(({ name }) => name).toSorted()).toEqual(names.toSorted());
  }),
  test("A name that leads out of a job's artifacts leads nowhere: 400 or 404", async (api) => {
    const id = await finishedJobWith(api, { "a.txt": "a", b: "b" });
    for (const name of [
      "../../etc/passwd",
      "..%2f..%2fetc%2fpasswd",
      "%2e%2e%2fpasswd",
      "sub/%2e%2e/%2e%2e/x",
      "%2Fetc%2Fpasswd",
      "//etc/passwd",
      "a%00.txt",
      "%00",
      "a%0d%0ab",
      "..%5c..%5cx",
      ".",
      "..",
      "a%2f..%2fb",
      "%ff",
      "%",
    ]) {
      for (const method of ["GET", "HEAD"]) {
        const { status } = await api.send(method, `/jobs/${id}/artifacts/${name}`);
        expect([name, [400, 404].includes(status)]).toEqual([name, true]);
      }
    }
  }),
  test("An upload is refused whose name is no path below a folder", async (api) => {
    const { agent, lease_id } = await working(api);
    for (const name of [...badNames, "é".repeat(513), "."]) {
      const { status } = await agent.upload(lease_id, name, "x");
      expect([name, [400, 404].includes(status)]).toEqual([name, true]);
    }
  }),
  test("_code.py and _input.json are the submitted code and input, even before the job ends", async (api) => {
    const reply = await api.post(
      "/execute/async",
      `{"code":"print('é')\\r\\n","input_data":{"a":1.50,"b":"é"}}`,
    );
    const { job_id } = body(reply) as { job_id: string };
    const code = await api.get(path(job_id, "_code.py"));
    expect([code.status, code.text]).toEqual([200, "print('é')\r\n"]);
    expect(code.headers.get("Content-Type")).toBe("text/x-python; charset=utf-8");
    const input = await api.get(path(job_id, "_input.json"));
    expect([input.status, input.text]).toEqual([200, '{"a":1.50,"b":"é"}']);
    expect(input.headers.get("Content-Type")).toBe("application/json");
    const { input_artifacts = [] } = await api.record(job_id);
    for (const { name, sha256: hash, size_bytes } of input_artifacts) {
      const head = await api.send("HEAD", path(job_id, name));
      expect(head.headers.get("ETag")).toBe(`"${hash}"`);
      expect(head.headers.get("Content-Length")).toBe(String(size_bytes));
    }
  }),
  test("A file that a job writes as _code.py never replaces the submitted code", async (api) => {
    const { agent, job_id, lease_id } = await working(api, { code: "print('honest')" });
    expect((await agent.upload(lease_id, "_code.py", "print('forged')")).status).toBe(400);
    expect((await agent.upload(lease_id, "_input.json", "{}")).status).toBe(400);
    await agent.result(lease_id);
    expect((await api.get(path(job_id, "_code.py"))).text).toBe("print('honest')");
  }),
  test("An empty artifact is served with length 0", async (api) => {
    const id = await finishedJobWith(api, { "empty.txt": "" });
    const reply = await api.get(path(id, "empty.txt"));
    expect([reply.status, reply.text]).toEqual([200, ""]);
    expect(reply.headers.get("Content-Length")).toBe("0");
    expect((await api.record(id)).artifacts).toMatchObject([{ name: "empty.txt", size_bytes: 0 }]);
  }),
  test("Artifacts are listed by name with size, hash and type", async (api) => {
    const id = await finishedJobWith(api, { "b.png": "png", "a/b.json": "{}", unknown: "?" });
    expect((await api.record(id)).artifacts).toEqual([
      await described("a/b.json", "{}", "application/json"),
      await described("b.png", "png", "image/png"),
      await described("unknown", "?", "application/octet-stream"),
    ]);
  }),
  test("An artifact is not visible until the result of its lease is accepted", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    expect((await agent.upload(lease_id, "a.txt", "a")).status).toBe(200);
    expect((await api.get(path(job_id, "a.txt"))).status).toBe(404);
    expect((await api.record(job_id)).artifacts).toEqual([]);
    await agent.result(lease_id);
    expect((await api.get(path(job_id, "a.txt"))).status).toBe(200);
  }),
];

export const rangeRows: Row[] = [
  test("A Range of an artifact is 206 with that part alone, beyond its end 416 with its size; several, a malformed one or one for another ETag give the whole", async (api) => {
    const artifact = path(await finishedJobWith(api, { "digits.bin": "0123456789" }), "digits.bin");
    const etag = (await api.get(artifact)).headers.get("ETag") ?? "";
    for (const [range, status, text, contentRange, known] of [
      ["bytes=2-4", 206, "234", "bytes 2-4/10"],
      ["bytes=7-", 206, "789", "bytes 7-9/10"],
      ["bytes=-2", 206, "89", "bytes 8-9/10"],
      ["bytes=5-99", 206, "56789", "bytes 5-9/10"],
      ["bytes=0-1", 206, "01", "bytes 0-1/10", etag],
      ["bytes=10-", 416, undefined, "bytes */10"],
      ["bytes=0-1,3-4", 200, "0123456789", null],
      ["bytes=x", 200, "0123456789", null],
      ["bytes=0-1", 200, "0123456789", null, '"other"'],
    ] as const) {
      const reply = await api.get(artifact, { Range: range, ...(known && { "If-Range": known }) });
      const told = [range, reply.status, reply.headers.get("Content-Range")];
      expect(told).toEqual([range, status, contentRange]);
      if (text === undefined) continue;
      expect(reply.text).toBe(text);
      expect(reply.headers.get("Content-Length")).toBe(String(text.length));
      if (status === 206) expect(reply.headers.get("Accept-Ranges")).toBe("bytes");
    }
  }),
  test("Range serves parts of _code.py too", async (api) => {
    const { job_id } = await api.submit({ code: "print(12345)" });
    const reply = await api.get(`/jobs/${job_id}/artifacts/_code.py`, { Range: "bytes=6-10" });
    expect([reply.status, reply.text]).toEqual([206, "12345"]);
  }),
];
