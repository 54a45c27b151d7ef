import { expect } from "vitest";
import { ExecutionPage } from "../../../shared/wire/execution.ts";
import { body, expectFault, problemOf } from "./api.ts";
import { on } from "./row.ts";
import { served } from "./serving.ts";

const octets = { "Content-Type": "application/octet-stream" };

export const sessionFileRows = on("with sessions", [
  {
    rule: "PUT /sessions/{id}/files/{path} is a call that writes the file; lists leave it out unless they ask for it",
    async check(api) {
      const { id, agent } = await served(api);
      const path = `/sessions/${id}/files/tables/a.csv`;
      const answer = api.send("PUT", path, { headers: octets, body: "a,b\n" });
      const call = await agent.takeCall();
      expect(call).toMatchObject({
        code: "",
        files: [{ name: "tables/a.csv", size_bytes: 4, to: "work" }],
        call: { fetch: [] },
      });
      const { sha256 } = call.files![0]!;
      expect((await agent.get(`/leases/${call.lease_id}/files/${sha256}`)).text).toBe("a,b\n");
      await agent.result(call.lease_id);
      expect((await answer).status).toBe(204);
      const count = async (query: string) =>
        ExecutionPage.parse(body(await api.get(`/executions?session_id=${id}${query}`))).count;
      expect([await count(""), await count("&kind=files"), await count("&kind=all")]).toEqual([
        0, 1, 1,
      ]);
    },
  },
  {
    rule: "GET and HEAD /sessions/{id}/files/{path} bring the file that a call fetches; one that is not there is 404",
    async check(api) {
      const { id, agent } = await served(api);
      const path = `/sessions/${id}/files/tables/a.csv`;
      for (const method of ["GET", "HEAD"]) {
        const answer = api.send(method, path);
        const call = await agent.takeCall();
        expect(call).toMatchObject({ code: "", call: { fetch: ["tables/a.csv"] } });
        await agent.upload(call.lease_id, "_fetched/tables/a.csv", "a,b\n");
        await agent.result(call.lease_id);
        const reply = await answer;
        expect([reply.status, reply.text]).toEqual([200, method === "GET" ? "a,b\n" : ""]);
        expect(reply.headers.get("Content-Type")).toMatch(/^text\/csv/);
        expect(reply.headers.get("Content-Length")).toBe("4");
      }
      const answer = api.get(path);
      const { lease_id } = await agent.takeCall();
      await agent.result(lease_id, { warnings: ["tables/a.csv was left out: it is a link."] });
      const missing = await answer;
      expect(missing.status).toBe(404);
      expect(problemOf(missing).detail).toContain("it is a link");
    },
  },
  {
    rule: "GET /sessions/{id}/files lists a folder by a program of the image; its output is checked",
    async check(api) {
      const { id, agent } = await served(api);
      const list = async (stdout: string, exit_code = 0) => {
        const answer = api.get(`/sessions/${id}/files?path=tables`);
        const { lease_id, program, call } = await agent.takeCall();
        expect(program!.run).toMatchObject(["python3", "-I", "-c", expect.anything(), "tables"]);
        expect(call).toMatchObject({ only_fetches: true });
        const error = { type: "runtime_error", message: "exit", phase: "execution" } as const;
        const failed = { status: "failed", exit_code, error } as const;
        await agent.result(lease_id, {
          stdout_base64: btoa(stdout),
          ...(exit_code !== 0 && failed),
        });
        return answer;
      };
      const found = await list('[["a.csv","file",4,1000],["b","folder",0,2000]]');
      expect(body(found)).toEqual({
        path: "tables",
        items: [
          {
            path: "tables/a.csv",
            type: "file",
            size_bytes: 4,
            modified_at: "1970-01-01T00:00:01.000Z",
          },
          {
            path: "tables/b",
            type: "folder",
            size_bytes: 0,
            modified_at: "1970-01-01T00:00:02.000Z",
          },
        ],
      });
      expect((await list("", 44)).status).toBe(404);
      expect((await list('[["a.csv","file",-4,1e300]]')).status).toBe(409);
      expect((await list("nonsense")).status).toBe(409);
    },
  },
  {
    rule: "DELETE /sessions/{id}/files/{path} removes by a program of the image; what it says comes back",
    async check(api) {
      const { id, agent } = await served(api);
      const remove = async (exit_code: number) => {
        const answer = api.send("DELETE", `/sessions/${id}/files/a`);
        const { lease_id, program } = await agent.takeCall();
        expect(program!.run.at(-1)).toBe("a");
        const error = { type: "os_error", message: "busy", phase: "execution" } as const;
        await agent.result(lease_id, exit_code === 0 ? {} : { status: "failed", exit_code, error });
        return answer;
      };
      expect((await remove(0)).status).toBe(204);
      expect((await remove(44)).status).toBe(404);
      const refused = await remove(1);
      expect([refused.status, problemOf(refused).detail]).toEqual([409, "a: busy"]);
    },
  },
  {
    rule: "A path of a session's file must stay below /output",
    async check(api) {
      const { id } = await served(api);
      const files = `/sessions/${id}/files`;
      expectFault(await api.get(`${files}?path=..`), "path");
      expectFault(await api.get(`${files}/a%2F..%2Fb`), "path");
      expectFault(await api.send("DELETE", `${files}/_code.py`), "path");
      const put = await api.send("PUT", `${files}/a%5Cb`, { headers: octets, body: "a" });
      expectFault(put, "path");
    },
  },
]);
