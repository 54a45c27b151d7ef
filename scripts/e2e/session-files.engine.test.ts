import { expect, test } from "vitest";
import { places, placesOfTier } from "../testing/places.ts";
import { startTestService } from "../testing/test-service.ts";

test.each(placesOfTier)(
  "in %s, files of a session are written, listed, read and removed, in the order of its calls",
  async (place) => {
    await using service = await startTestService();
    await service.startAgent("files", places[place]);
    const made = await service.send("POST", "/sessions", { wait: 30 });
    expect(made.status).toBe(201);
    const session = `/sessions/${String(made.json["session_id"])}`;
    const raw = async (method: string, path: string, body?: string) => {
      const headers = { "Content-Type": "application/octet-stream" };
      const init = { method, ...(body !== undefined && { body, headers }) };
      const reply = await fetch(`${service.url}${session}/files${path}`, init);
      return { status: reply.status, headers: reply.headers, text: await reply.text() };
    };
    const execute = async (code: string) =>
      (await service.send("POST", `${session}/execute`, { code })).json["stdout"];

    expect((await raw("PUT", "/tables/a.csv", "a,b\n")).status).toBe(204);
    expect((await raw("PUT", "/tables/a.csv", "c,d\n")).status).toBe(204);
    expect(await execute("print(open('tables/a.csv').read())")).toBe("c,d\n\n");
    await execute("open('tables/b', 'w').write('made')\nimport os\nos.mkdir('tables/c')");
    const { text } = await raw("GET", "?path=tables");
    expect(JSON.parse(text)).toMatchObject({
      items: [
        { path: "tables/a.csv", type: "file", size_bytes: 4 },
        { path: "tables/b", type: "file", size_bytes: 4 },
        { path: "tables/c", type: "folder" },
      ],
    });
    expect(await raw("GET", "/tables/b")).toMatchObject({ status: 200, text: "made" });
    const head = await raw("HEAD", "/tables/a.csv");
    expect([head.status, head.headers.get("Content-Length")]).toEqual([200, "4"]);
    expect((await raw("GET", "/tables/none")).status).toBe(404);
    expect((await raw("GET", "/tables/c")).status).toBe(404);
    expect((await raw("GET", "?path=none")).status).toBe(404);

    await execute("os.symlink('/etc/passwd', 'link')");
    expect((await raw("GET", "/link")).status).toBe(404);
    expect((await raw("DELETE", "/link")).status).toBe(204);
    expect((await raw("DELETE", "/tables")).status).toBe(204);
    expect((await raw("DELETE", "/tables")).status).toBe(404);
    expect(await execute("print(os.listdir('.'))")).toBe("[]\n");
  },
);
