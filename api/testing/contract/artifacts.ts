import { expect } from "vitest";
import { type ScriptedAgent, sha256 } from "../scripted-agent.ts";
import { body, type Api } from "./api.ts";
import { each, type Row } from "./row.ts";

const utf8 = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

/** A finished job with these artifacts. */
async function jobWith(api: Api, files: Record<string, string>): Promise<string> {
  const { job_id } = await api.submit({ code: "print('é')", input_data: { a: 1.5 } });
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  await upload(agent, lease_id, files);
  await agent.result(lease_id);
  return job_id;
}

async function upload(agent: ScriptedAgent, lease: string, files: Record<string, string>) {
  for (const [name, content] of Object.entries(files)) {
    expect((await agent.upload(lease, name, content)).status).toBe(200);
  }
}

const path = (id: string, name: string): string =>
  `/jobs/${id}/artifacts/${encodeURIComponent(name)}`;

export const artifactRows: Row[] = [
  {
    rule: "An artifact is served with its type, length, hash and name; HEAD serves only the headers",
    async check(api) {
      const id = await jobWith(api, { "table.csv": "a,b\n1,é\n" });
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
    },
  },
  {
    rule: "An artifact is no part of a page: browsers may not run it, style with it or frame it",
    async check(api) {
      const active = ["a.js", "a.mjs", "a.ecma", "a.css"];
      const id = await jobWith(
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
    },
  },
  {
    rule: "If-None-Match with the current ETag is 304 without a body: alone, in a list, weak, or *",
    async check(api) {
      const id = await jobWith(api, { "a.bin": "content" });
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
    },
  },
  {
    rule: "A nested artifact is found under its name with slashes plain or encoded",
    async check(api) {
      const id = await jobWith(api, { "sub/dir/x.txt": "x", "sub/y.txt": "y" });
      for (const name of ["sub/dir/x.txt", "sub%2Fdir%2Fx.txt", "sub%2fdir/x.txt"]) {
        const reply = await api.get(`/jobs/${id}/artifacts/${name}`);
        expect([reply.status, reply.text]).toEqual([200, "x"]);
        expect(reply.headers.get("Content-Disposition")).toContain('filename="x.txt"');
      }
      for (const name of ["sub", "sub/", "sub//y.txt", "y.txt", "sub/dir"]) {
        expect((await api.get(`/jobs/${id}/artifacts/${name}`)).status).toBeGreaterThanOrEqual(400);
      }
    },
  },
  ...each(
    [
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
    ],
    (name) => `An artifact may be named ${name.length > 40 ? `${name.length} letters` : name}`,
    async (api, name) => {
      const id = await jobWith(api, { [name]: "content" });
      const reply = await api.get(path(id, name));
      expect([reply.status, reply.text]).toEqual([200, "content"]);
      const disposition = reply.headers.get("Content-Disposition") ?? "";
      const exact = /^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''(\S+)$/.exec(
        disposition,
      );
      expect(decodeURIComponent(exact?.[1] ?? "")).toBe(name);
      expect((await api.record(id)).artifacts).toMatchObject([{ name, size_bytes: 7 }]);
    },
  ),
  ...each(
    [
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
    ],
    (name) => `The name ${name} leads nowhere: 400 or 404`,
    async (api, name) => {
      const id = await jobWith(api, { "a.txt": "a", b: "b" });
      for (const method of ["GET", "HEAD"]) {
        const reply = await api.send(method, `/jobs/${id}/artifacts/${name}`);
        expect([400, 404]).toContain(reply.status);
      }
    },
  ),
  ...each(
    ["../x", "/x", "a/../b", "a//b", "", "a\\b", "a\nb", "x".repeat(1025), "é".repeat(513), "."],
    (name) => `An upload named ${JSON.stringify(name.slice(0, 20))} (${name.length}) is refused`,
    async (api, name) => {
      await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      const reply = await agent.upload(lease_id, name, "x");
      expect([400, 404]).toContain(reply.status);
    },
  ),
  {
    rule: "_code.py and _input.json are the submitted code and input, even before the job ends",
    async check(api) {
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
    },
  },
  {
    rule: "A file that a job writes as _code.py never replaces the submitted code",
    async check(api) {
      const { job_id } = await api.submit({ code: "print('honest')" });
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      expect((await agent.upload(lease_id, "_code.py", "print('forged')")).status).toBe(400);
      expect((await agent.upload(lease_id, "_input.json", "{}")).status).toBe(400);
      await agent.result(lease_id);
      expect((await api.get(path(job_id, "_code.py"))).text).toBe("print('honest')");
    },
  },
  {
    rule: "An empty artifact is served with length 0",
    async check(api) {
      const id = await jobWith(api, { "empty.txt": "" });
      const reply = await api.get(path(id, "empty.txt"));
      expect([reply.status, reply.text]).toEqual([200, ""]);
      expect(reply.headers.get("Content-Length")).toBe("0");
      expect((await api.record(id)).artifacts).toMatchObject([
        { name: "empty.txt", size_bytes: 0 },
      ]);
    },
  },
  {
    rule: "Artifacts are listed by name with size, hash and type",
    async check(api) {
      const id = await jobWith(api, { "b.png": "png", "a/b.json": "{}", unknown: "?" });
      expect((await api.record(id)).artifacts).toEqual([
        {
          name: "a/b.json",
          size_bytes: 2,
          sha256: await sha256(utf8("{}")),
          content_type: "application/json",
        },
        {
          name: "b.png",
          size_bytes: 3,
          sha256: await sha256(utf8("png")),
          content_type: "image/png",
        },
        {
          name: "unknown",
          size_bytes: 1,
          sha256: await sha256(utf8("?")),
          content_type: "application/octet-stream",
        },
      ]);
    },
  },
  {
    rule: "An artifact is not visible until the result of its lease is accepted",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      await upload(agent, lease_id, { "a.txt": "a" });
      expect((await api.get(path(job_id, "a.txt"))).status).toBe(404);
      expect((await api.record(job_id)).artifacts).toEqual([]);
      await agent.result(lease_id);
      expect((await api.get(path(job_id, "a.txt"))).status).toBe(200);
    },
  },
];
