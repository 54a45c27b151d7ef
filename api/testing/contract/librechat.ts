import { createHash } from "node:crypto";
import { expect } from "vitest";
import type { Api } from "./api.ts";
import { on } from "./row.ts";
import { apiKeys } from "./servers.ts";

const server = "with other protocols" as const;

const at = (api: Api, path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(`${api.url}/compat/librechat${path}`, init);

async function told(answer: Response | Promise<Response>): Promise<unknown[]> {
  const { status } = await answer;
  return [status, await (await answer).json()];
}

const exec = (api: Api, fields: object, headers: Record<string, string> = {}) =>
  at(api, "/exec", { method: "POST", headers, body: JSON.stringify(fields) });

function form(files: Readonly<Record<string, string>>): FormData {
  const all = new FormData();
  all.append("kind", "user");
  for (const [name, text] of Object.entries(files)) all.append("file", new Blob([text]), name);
  return all;
}

interface Uploaded {
  storage_session_id: string;
  files: { fileId: string; filename: string }[];
}

async function upload(
  api: Api,
  path: string,
  files: Readonly<Record<string, string>>,
): Promise<Uploaded> {
  const answer = await at(api, path, { method: "POST", body: form(files) });
  expect(answer.status).toBe(200);
  return (await answer.json()) as Uploaded;
}

const sha256Of = (text: string): string => createHash("sha256").update(text).digest("hex");
const id = expect.stringMatching(/^[A-Za-z0-9_-]{21}$/) as string;
const error = expect.any(String) as string;

export const librechatRows = on(server, [
  {
    rule: "LibreChat: code gets uploaded files and those of earlier code; what it leaves is a session",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const given = await upload(api, "/upload", { "in/a.csv": "1,2" });
      expect(given).toEqual({
        message: "success",
        storage_session_id: id,
        session_id: given.storage_session_id,
        files: [{ fileId: id, filename: "in/a.csv" }],
      });
      const file = {
        id: given.files[0]!.fileId,
        name: "in/a.csv",
        storage_session_id: given.storage_session_id,
      };
      const asked = { lang: "py", code: "1", args: ["x"], timeout: 2200, user_id: "u" };
      const first = exec(api, { ...asked, files: [{ ...file, kind: "user", resource_id: "u" }] });
      const job = await agent.takeJob();
      expect(job).toMatchObject({
        timeout_s: 3,
        files: [{ name: "work/in/a.csv", size_bytes: 3 }],
      });
      const exact = '{ "n": 1.0, "big": 12345678901234567890 }\n';
      await agent.upload(job.lease_id, "in/a.csv", "1,2");
      await agent.upload(job.lease_id, "plot.png", "png");
      await agent.result(job.lease_id, {
        stdout_base64: btoa("out"),
        output_json: exact,
      });
      const ran = (await (await first).json()) as { session_id: string; files: { id: string }[] };
      const left = (name: string) => ({ id, name, storage_session_id: ran.session_id });
      expect(ran).toEqual({
        session_id: id,
        stdout: "out",
        stderr: "",
        files: [{ ...file, inherited: true }, left("plot.png"), left("result.json")],
      });

      const second = exec(api, { lang: "bash", code: "ls", files: ran.files });
      const next = await agent.takeJob();
      expect(next.files?.map(({ name }) => name).sort()).toEqual([
        "work/in/a.csv",
        "work/plot.png",
        "work/result.json",
      ]);
      await agent.result(next.lease_id);
      expect((await second).status).toBe(200);

      const [, plot, result] = ran.files;
      const downloaded = await at(api, `/download/${ran.session_id}/${plot!.id}?kind=user&id=u`);
      expect([downloaded.headers.get("Content-Type"), await downloaded.text()]).toEqual([
        "image/png",
        "png",
      ]);
      const output = await at(api, `/download/${ran.session_id}/${result!.id}`);
      expect(await output.text()).toBe(exact);
      const givenOn = next.files?.find(({ name }) => name === "work/result.json");
      expect(givenOn).toMatchObject({ size_bytes: exact.length, sha256: sha256Of(exact) });
    },
  },
  {
    rule: "LibreChat: a result.json that is no JSON object is a file of the code, which did not fail",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const asked = exec(api, { lang: "py", code: "1" });
      const { lease_id } = await agent.takeJob();
      await agent.upload(lease_id, "result.json", "[1.0]");
      const error = { type: "json_error", message: "not usable", phase: "execution" } as const;
      await agent.result(lease_id, { status: "failed", exit_code: 0, error });
      const { session_id, stderr, files } = (await (await asked).json()) as {
        session_id: string;
        stderr: string;
        files: { id: string; name: string }[];
      };
      expect([stderr, files.map(({ name }) => name)]).toEqual(["", ["result.json"]]);
      const file = await at(api, `/download/${session_id}/${files[0]!.id}`);
      expect(await file.text()).toBe("[1.0]");
    },
  },
  {
    rule: "LibreChat: files of an upload are listed, described, and removed one by one",
    async check(api) {
      const all = { "one.txt": "1", "skill/two.csv": "22", "../three": "3" };
      const { storage_session_id: session, files } = await upload(api, "/upload/batch", all);
      expect(files).toEqual([
        { status: "success", filename: "one.txt", fileId: id },
        { status: "success", filename: "skill/two.csv", fileId: id },
        { status: "error", filename: "../three", error },
      ]);
      await upload(api, "/upload", { "other.txt": "" });
      const listed = await at(api, `/files/${session}?detail=full`);
      const described = (n: number, name: string, ending: string) => ({
        name: `${session}/${files[n]!.fileId}${ending}`,
        id: files[n]!.fileId,
        storage_session_id: session,
        size: n + 1,
        etag: expect.any(String) as string,
        lastModified: expect.stringMatching(/Z$/) as string,
        metadata: { "original-filename": name },
      });
      const [one, two] = [described(0, "one.txt", ".txt"), described(1, "skill/two.csv", ".csv")];
      expect(await listed.json()).toEqual([two, one]);
      const object = `/sessions/${session}/objects/${files[1]!.fileId}`;
      expect(await told(at(api, object))).toEqual([200, two]);
      expect((await at(api, object, { method: "DELETE" })).status).toBe(200);
      expect(await told(at(api, object))).toEqual([404, { error }]);
      expect((await at(api, object, { method: "DELETE" })).status).toBe(404);
    },
  },
  {
    rule: "LibreChat: refusals have its form; a key in a request counts instead of compat_key",
    async check(api) {
      expect(await told(exec(api, { lang: "d", code: "" }))).toEqual([
        400,
        { error: "Unsupported language: d" },
      ]);
      const file = { id: "A".repeat(21), name: "a", storage_session_id: "A".repeat(21) };
      expect(await told(exec(api, { lang: "py", code: "", files: [file] }))).toEqual([
        404,
        { error },
      ]);
      const files = Array.from({ length: 101 }, () => file);
      expect(await told(exec(api, { lang: "py", code: "", files }))).toEqual([400, { error }]);
      expect(await told(at(api, "/files/no"))).toEqual([404, { error }]);
      expect(await told(at(api, "/upload", { method: "POST", body: "x" }))).toEqual([
        400,
        { error },
      ]);
      const asked = { lang: "py", code: "1" };
      for (const [name, value] of Object.entries({
        "X-API-Key": "no",
        Authorization: "Bearer no",
      })) {
        expect((await exec(api, asked, { [name]: `${value}-0123456789abcdef` })).status).toBe(401);
      }
      const agent = api.agent();
      await agent.poll();
      const reply = exec(api, asked, { Authorization: `Bearer ${apiKeys[1]}` });
      const job = await agent.takeJob();
      await agent.result(job.lease_id);
      expect((await reply).status).toBe(200);
    },
  },
]);
