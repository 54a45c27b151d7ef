import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { expect, test } from "vitest";
import { connectEngine, type Engine } from "./engine.ts";
import { containerProfile } from "../container/container-profile.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { type Answer, fakeEngines } from "../testing/fake-engine.ts";

const { folder, fakeEngine } = fakeEngines();

const failing = (status: number, message: string): Answer => {
  return (request, response) => {
    request.resume().on("end", () => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify({ message }));
    });
  };
};

const never = new AbortController().signal;
const profile = containerProfile(specWith());

test.each([
  [404, "No such image: python:3.13-slim", "image_not_found", false],
  [404, "No such container: abc", "other", false],
  [409, "You cannot remove a running container", "conflict", false],
  [400, "invalid runtime name: nope", "other", false],
  [
    400,
    'OCI runtime create failed: exec: "python3": executable file not found in $PATH: unknown',
    "command_not_found",
    false,
  ],
  [500, "exec: python3: no such file or directory", "command_not_found", true],
  [500, "write /var/lib/x: no space left on device", "disk_full", true],
  [500, "server misbehaving", "other", true],
])("status %i, %s: %s", async (status, message, code, transient) => {
  const engine = await fakeEngine(failing(status, message));
  await expect(engine.create(profile, never)).rejects.toMatchObject({
    name: "EngineError",
    code,
    transient,
    message: expect.stringContaining(message) as string,
  });
});

test("an engine tells its version and its runtimes, its default first", async () => {
  const info = {
    ServerVersion: "20.10",
    DefaultRuntime: "runc",
    Runtimes: { runsc: {}, runc: {} },
  };
  const engine = await fakeEngine((request, response) => {
    request.resume().on("end", () => response.end(JSON.stringify(info)));
  });
  expect(await engine.describe(never)).toEqual({
    available: true,
    version: "20.10",
    runtimes: ["runc", "runsc"],
  });
});

test("an engine that is not there is unavailable", async () => {
  const engine = connectEngine(`unix://${folder}/absent.sock`);
  await expect(engine.describe(never)).rejects.toMatchObject({
    name: "EngineError",
    code: "unavailable",
    transient: true,
  });
});

test("an engine that hangs up is unavailable", async () => {
  const engine = await fakeEngine((request) => request.socket.destroy());
  await expect(engine.start("abc", never)).rejects.toMatchObject({ code: "unavailable" });
});

const calls: Record<string, (engine: Engine, signal: AbortSignal) => Promise<unknown>> = {
  ping: (engine, signal) => engine.ping(signal),
  describe: (engine, signal) => engine.describe(signal),
  create: (engine, signal) => engine.create(profile, signal),
  attach: (engine, signal) => engine.attach("abc", signal),
  start: (engine, signal) => engine.start("abc", signal),
  wait: (engine, signal) => engine.wait("abc", signal),
  inspect: (engine, signal) => engine.inspect("abc", signal),
  tellsOutOfMemory: (engine, signal) => engine.tellsOutOfMemory("abc", signal),
  remove: (engine, signal) => engine.remove("abc", signal),
  list: (engine, signal) => engine.list("a", "b", signal),
  imageId: (engine, signal) => engine.imageId("x", signal),
  labelledImageId: (engine, signal) => engine.labelledImageId("a", "b", signal),
  pull: (engine, signal) => engine.pull("x:y", signal),
};

test.each(Object.entries(calls))(
  "%s can be given up while the engine says nothing",
  async (_name, call) => {
    const asked = Promise.withResolvers<void>();
    const engine = await fakeEngine((request) => request.resume().on("end", asked.resolve));
    const giveUp = new AbortController();
    const calling = call(engine, giveUp.signal);
    await Promise.race([asked.promise, calling]);
    giveUp.abort(new Error("no time"));
    await expect(calling).rejects.toThrow("no time");
  },
);

test("news that a container was out of memory may come after its end, or not at all", async () => {
  const engine = await fakeEngine((request, response) => {
    request.resume();
    response.writeHead(200, { "content-type": "application/json" }).flushHeaders();
    const { searchParams } = new URL(request.url ?? "", "http://engine");
    expect(JSON.parse(searchParams.get("filters") ?? "")).toMatchObject({ event: ["oom"] });
    const isTold = searchParams.get("filters")?.includes("killed");
    if (isTold) setTimeout(() => response.write('{"Action":"oom"}\n'), 10);
  });
  expect(await engine.tellsOutOfMemory("killed", never)).toBe(true);
  expect(await engine.tellsOutOfMemory("stopped", never)).toBe(false);
});

test("the profile travels in the body alone", async () => {
  const addresses: (string | undefined)[] = [];
  const engine = await fakeEngine((request, response) => {
    addresses.push(request.url);
    request.resume().on("end", () => response.writeHead(201).end(JSON.stringify({ Id: "abc" })));
  });
  expect(await engine.create(profile, never)).toBe("abc");
  expect(addresses).toEqual([
    expect.stringMatching(/^\/containers\/create\?name=airlock-agent-1-[0-9a-f-]{36}$/),
  ]);
});

test("nothing but the supervisor's orders comes into a container", async () => {
  const first = Promise.withResolvers<string>();
  const path = join(folder, "attach.sock");
  // Podman's way: whatever follows the head of the request is the container's input.
  const server = createServer((socket) => {
    let heard = "";
    socket.on("data", (chunk) => {
      heard += chunk.toString();
      const [head = "", ...rest] = heard.split("\r\n\r\n");
      if (rest.length === 0) return;
      if (heard.endsWith("order")) first.resolve(rest.join("\r\n\r\n"));
      else socket.write("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
      expect(head).toMatch(/^POST .*stdin=true/);
    });
  }).listen(path);
  await once(server, "listening");
  const stream = await connectEngine(`unix://${path}`).attach("abc", never);
  stream.write("order");
  expect(await first.promise).toBe("order");
  stream.destroy();
  server.close();
});

test("a container that is gone already needs no removal", async () => {
  const engine = await fakeEngine(failing(404, "No such container: abc"));
  await expect(engine.remove("abc", never)).resolves.toBeUndefined();
});

test("an image that is not there has no id", async () => {
  const engine = await fakeEngine(failing(404, "No such image: x"));
  expect(await engine.imageId("x", never)).toBeNull();
});

test("a pull that fails half way is an error", async () => {
  const engine = await fakeEngine((request, response) => {
    request.resume();
    response.write(`${JSON.stringify({ status: "Pulling" })}\r\n`);
    response.end(`${JSON.stringify({ error: "manifest unknown" })}\r\n`);
  });
  await expect(engine.pull("x:y", never)).rejects.toMatchObject({
    name: "EngineError",
    code: "image_not_found",
    message: "manifest unknown",
  });
});
