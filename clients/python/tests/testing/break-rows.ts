import { expect, test } from "vitest";
import { ScriptedAgent } from "../../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../../api/testing/start-node.ts";
import { startCuttingProxy } from "../../../../scripts/testing/cutting-proxy.ts";
import { startUploadService, uploadBytes, uploadCuts } from "../../../testing/upload-service.ts";
import { startEventService } from "../../../testing/event-service.ts";
import type { PythonClient } from "../../../testing/python-client.ts";

const token = "agent-token-0123456789";
const points = (end: number, step: number): number[] =>
  Array.from({ length: Math.ceil(end / step) }, (_, n) => n * step + 1);

/** What must hold when connections break. */
export function breakRows(python: PythonClient): void {
  test("a stream whose connection breaks at any point brings every event once, in order", async () => {
    await using service = await startEventService();
    await using proxy = await startCuttingProxy(service.url);
    const cuts = points(900, 60);
    // Each stream takes two connections: one that breaks, and one that is whole.
    proxy.cutNext(...cuts.flatMap((answer) => [{ answer }, {}]));
    const program = `
client = airlock.connect(sys.argv[1])
print(json.dumps([list(client.stream("j")) for _ in range(int(sys.argv[2]))]))`;
    const streams = await python.run<{ id?: string }[][]>(program, proxy.url, String(cuts.length));
    expect(proxy.cuts()).toBe(cuts.length);
    for (const events of streams) {
      // Only an event without a cursor can come again.
      expect(events.filter(({ id }) => id)).toEqual(service.events.filter(({ id }) => id));
    }
  });

  test("a stream goes on when an answer ends before the job does, and from a given event", async () => {
    await using service = await startEventService(2);
    const program = `
client = airlock.connect(sys.argv[1])
print(json.dumps([list(client.stream("j", after=after)) for after in (None, "c/3+", "c/end")]))`;
    expect(await python.run(program, service.url)).toEqual([
      service.events,
      service.events.slice(5),
      [],
    ]);
  });

  test("an upload whose connection breaks at any point stores one file, from memory and from disk", async () => {
    await using service = await startUploadService();
    const cuts = uploadCuts.flatMap((cut) => [cut, {}, cut, {}]);
    service.proxy.cutNext(...cuts);
    const program = `
import hashlib, pathlib, tempfile
client = airlock.connect(sys.argv[1])
body = bytes(range(256)) * (${uploadBytes} // 256)
with tempfile.NamedTemporaryFile() as file:
    file.write(body); file.flush()
    for n in range(${uploadCuts.length}):
        client.files.upload(f"{n} memory", body)
        client.files.upload(f"{n} disk", pathlib.Path(file.name))
digest = hashlib.sha256(body).hexdigest()
print(json.dumps(sorted(f"{n} {of} {len(body)} {digest}" for n in range(${uploadCuts.length}) for of in ("memory", "disk"))))`;
    expect(await service.files()).toEqual([]);
    expect(await python.run(program, service.proxy.url)).toEqual(await service.files());
    expect(service.proxy.cuts()).toBe(2 * uploadCuts.length);
  });

  test("a file is saved whole wherever its connection breaks, and continues from there", async () => {
    await using service = await startUploadService();
    const cuts = [0, 1, 40, 300, 70_000, uploadBytes / 2, uploadBytes];
    const broken = cuts.flatMap((answer) => [{ answer }, {}]);
    service.proxy.cutNext({}, ...broken, { answer: 300_000 }, { answer: 300_000 });
    const program = `
import os, tempfile
client = airlock.connect(sys.argv[1])
body = bytes(range(256)) * (${uploadBytes} // 256)
id = client.files.upload("a", body).file_id
folder = tempfile.mkdtemp()
def saved():
    client.files.save(id, os.path.join(folder, "a"))
    with open(os.path.join(folder, "a"), "rb") as file:
        return file.read() == body
print(json.dumps([[saved() for _ in range(${cuts.length})], client.files.get(id) == body, os.listdir(folder)]))`;
    expect(await python.run(program, service.proxy.url)).toEqual([
      cuts.map(() => true),
      true,
      ["a"],
    ]);
    expect(service.proxy.cuts()).toBe(cuts.length + 2);
  });

  test("an upload that is not sent again is an error and leaves nothing; so does one that is too large", async () => {
    await using service = await startUploadService();
    const cuts = uploadCuts.filter(({ request }) => request !== undefined);
    service.proxy.cutNext(...cuts);
    const program = `
client = airlock.connect(sys.argv[1], retries=0)
ends = []
for size in [${uploadBytes}] * ${cuts.length} + [${uploadBytes + 1}, ${3 * uploadBytes}]:
    try:
        client.files.upload("a", bytes(size))
    except airlock.AirlockError as error:
        ends.append(type(error).__name__)
print(json.dumps(ends))`;
    expect(await python.run(program, service.proxy.url)).toEqual([
      ...cuts.map(() => "ConnectionError"),
      "TooLargeError",
      "TooLargeError",
    ]);
    expect(await service.files()).toEqual([]);
  });

  test("a submission and a wait whose connections break at any point make and find one job", async () => {
    await using proxyOfApi = await startApi();
    const { url, api, proxy } = proxyOfApi;
    const cuts = [
      ...points(300, 100).map((request) => ({ request })),
      ...points(600, 100).map((answer) => ({ answer })),
    ];
    proxy.cutNext(...cuts.flatMap((cut) => [cut, {}]));
    const submit = `
client = airlock.connect(sys.argv[1])
jobs = [client.submit("pass", metadata={"test": "cut"})["job_id"] for _ in range(${cuts.length})]
print(json.dumps(jobs))`;
    const ids = await python.run<string[]>(submit, url);
    expect(proxy.cuts()).toBe(cuts.length);
    const list = await fetch(`${api}/executions?metadata=test:cut`);
    const { items } = (await list.json()) as { items: { execution_id: string }[] };
    expect(items).toHaveLength(ids.length);
    expect(new Set(items.map(({ execution_id }) => execution_id))).toEqual(new Set(ids));

    const agent = new ScriptedAgent(api, token);
    for (let left = ids.length; left > 0; left--) {
      const job = await agent.takeJob();
      await agent.result(job.lease_id, { status: "succeeded", exit_code: 0 });
    }
    proxy.cutNext(...ids.flatMap((_, n) => [{ answer: n * 100 + 1 }, {}]));
    const wait = `
client = airlock.connect(sys.argv[1])
print(json.dumps([client.wait(id)["status"] for id in sys.argv[2:]]))`;
    expect(await python.run(wait, url, ...ids)).toEqual(ids.map(() => "succeeded"));
  });

  test("a refusal raises the class of its code, and names the fields", async () => {
    await using service = await startApi();
    const program = `
client = airlock.connect(sys.argv[1])
told = []
for call in (
    lambda: client.submit(""),
    lambda: client.wait("00000000-0000-7000-8000-000000000000"),
    lambda: client.wait(client.submit("pass")["job_id"], wait_s=0),
    lambda: airlock.connect("http://127.0.0.1:1", retries=1).submit("pass"),
):
    try:
        call()
    except airlock.AirlockError as error:
        told.append([type(error).__name__, getattr(error, "code", None), str(error)])
print(json.dumps(told))`;
    expect(await python.run(program, service.url)).toEqual([
      [
        "InvalidRequestError",
        "invalid_request",
        "The request is not valid: code: must not be empty",
      ],
      ["NotFoundError", "not_found", expect.stringContaining("does not exist")],
      ["WaitTimeoutError", "wait_timeout", expect.stringContaining("did not end within 0 s")],
      ["ConnectionError", null, expect.stringContaining("http://127.0.0.1:1 could not be reached")],
    ]);
  });

  test("cancelling an async call closes its socket and ends its thread", async () => {
    await using service = await startApi();
    const program = `
async def main():
    client = airlock.connect_async(sys.argv[1])
    job = await client.submit("pass")
    waiting = [asyncio.ensure_future(client.wait(job["job_id"])) for _ in range(50)]
    done, _ = await asyncio.wait(waiting, timeout=1)
    during = threading.active_count()
    for wait in waiting:
        wait.cancel()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    while threading.active_count() > 1:
        await asyncio.sleep(0.01)
    print(json.dumps([len(done), during, sorted({type(end).__name__ for end in ends})]))
asyncio.run(main())`;
    expect(await python.run(program, service.url)).toEqual([0, 51, ["CancelledError"]]);
  });
}

/** A real API without agents, behind a proxy. */
async function startApi() {
  const api = await startNode({
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  });
  const proxy = await startCuttingProxy(api.url);
  return {
    api: api.url,
    url: proxy.url,
    proxy,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await api.close();
    },
  };
}
