import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { expect } from "vitest";
import { FilePage, UploadedFile } from "../../../shared/wire/file.ts";
import { sha256 } from "../scripted-agent.ts";
import { body, type Api, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { maxFileBytes, maxFilesBytes } from "./servers.ts";

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

const idsOf = (page: FilePage) => page.items.map(({ file_id }) => file_id);

export const fileRows: Row[] = [
  {
    rule: "POST /files stores the body and answers with its id, size, hash, type and time of expiry",
    async check(api) {
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
    },
  },
  {
    rule: "GET /files/{id} is the file, with type, length, hash and name; HEAD the headers; Range a part",
    async check(api) {
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
    },
  },
  {
    rule: "An upload that is sent again with its Idempotency-Key stores one file; a different upload with that key is 409",
    async check(api) {
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
    },
  },
  {
    rule: "An empty file is a file",
    async check(api) {
      const { file_id, size_bytes } = await uploaded(api, "empty", "");
      expect(size_bytes).toBe(0);
      const reply = await api.get(`/files/${file_id}`);
      expect([reply.status, reply.text]).toEqual([200, ""]);
    },
  },
  {
    rule: "A file whose SHA-256 is announced is stored only if it has it",
    async check(api) {
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
    },
  },
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
  {
    rule: "An upload larger than `max_file_bytes` is 413; one of exactly that size is stored",
    async check(api) {
      const most = "x".repeat(maxFileBytes);
      expect((await send(api, "most", most)).status).toBe(201);
      const reply = await send(api, "more", `${most}x`);
      expect([reply.status, problemOf(reply).code]).toEqual([413, "too_large"]);
      expect(problemOf(reply).detail).toContain(`${maxFileBytes} bytes (max_file_bytes)`);
    },
  },
  {
    rule: "Uploads that would give all files more than `max_files_bytes` are 503, also if they come at once; a single file of more is 413",
    server: "with a short queue",
    async check(api) {
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
    },
  },
  {
    rule: "An upload that breaks off leaves nothing",
    async check(api) {
      const before = await stored(api);
      await raw(api, ["Content-Length: 1000"], "only a part");
      expect((await uploaded(api, "next", "whole")).size_bytes).toBe(5);
      expect((await stored(api)).count).toBe(before.count + 1);
    },
  },
  ...each(
    [
      "",
      "/etc/passwd",
      "../x",
      "a/../b",
      "a//b",
      "a/",
      ".",
      "a\\b",
      "a\nb",
      "a\0b",
      "x".repeat(1025),
    ],
    (name) => `A file may not be named ${JSON.stringify(name.slice(0, 20))}`,
    async (api, name) => {
      expectFault(await send(api, name, "x"), "name");
    },
  ),
  {
    rule: "An upload as a form is 400, and the answer shows how to send the file",
    async check(api) {
      const form = { "Content-Type": "multipart/form-data; boundary=x" };
      const bytes = utf8('--x\r\nContent-Disposition: form-data; name="f"\r\n\r\na\r\n--x--\r\n');
      for (const target of ["/files", "/files?name=a"]) {
        const reply = await api.send("POST", target, { body: bytes, headers: form });
        expect([reply.status, problemOf(reply).detail]).toEqual([
          400,
          expect.stringContaining("--data-binary"),
        ]);
      }
    },
  },
  {
    rule: "An upload needs a name",
    async check(api) {
      expectFault(await api.send("POST", "/files", { body: utf8("x") }), "name");
    },
  },
  {
    rule: "GET /files lists files, newest first, in pages; `before` continues after the last one",
    async check(api) {
      const ids: string[] = [];
      for (const n of [1, 2, 3]) ids.unshift((await uploaded(api, `page-${n}`, "x")).file_id);
      const first = await stored(api, "limit=2");
      expect(first).toMatchObject({ limit: 2, offset: 0, count: 2, has_more: true });
      expect(idsOf(first)).toEqual(ids.slice(0, 2));
      await uploaded(api, "newer", "x");
      expect(idsOf(await stored(api, `limit=1&before=${ids[1]}`))).toEqual([ids[2]]);
      expect(idsOf(await stored(api, "limit=2&offset=1"))).toEqual(ids.slice(0, 2));
      expectFault(await api.get("/files?limit=0"), "limit");
      expectFault(await api.get("/files?before=x"), "before");
    },
  },
  {
    rule: "DELETE /files/{id} removes a file",
    async check(api) {
      const { file_id } = await uploaded(api, "gone", "x");
      const path = `/files/${file_id}`;
      const reply = await api.send("DELETE", path);
      expect([reply.status, body(reply)]).toEqual([200, { file_id, deleted: true }]);
      for (const method of ["GET", "HEAD", "DELETE"]) {
        expect((await api.send(method, path)).status).toBe(404);
      }
      expect((await stored(api)).items.map((file) => file.file_id)).not.toContain(file_id);
    },
  },
  {
    rule: "Files need a key where keys are required",
    server: "with keys",
    async check(api) {
      for (const [method, path] of [
        ["POST", "/files?name=a"],
        ["GET", "/files"],
        ["GET", `/files/${crypto.randomUUID()}`],
        ["DELETE", `/files/${crypto.randomUUID()}`],
      ] as const) {
        const sent = method === "POST" ? { body: utf8("x") } : {};
        expect((await api.send(method, path, sent)).status).toBe(401);
      }
    },
  },
];
