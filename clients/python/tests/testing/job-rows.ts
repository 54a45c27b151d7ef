import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestService, type TestService } from "../../../../scripts/testing/test-service.ts";
import { examplesOf } from "../../../testing/examples-of.ts";
import type { PythonClient } from "../../../testing/python-client.ts";

const key = "key-0123456789abcdef";
/** What must hold of jobs on the real engine. */
export function jobRows(python: PythonClient): void {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({ key });
    await service.startAgent();
  });
  afterAll(() => service[Symbol.asyncDispose]());

  test("the examples of the README print what they say", async () => {
    const { program, prints } = examplesOf("clients/python/README.md", "python", {
      url: service.url,
      key,
    });
    expect(prints).toHaveLength(5);
    const stdout = await python.print(program);
    expect(stdout.replace("42\n\n", "42\n")).toBe(`${prints.join("\n")}\n`);
  });

  test("cancelling an async run cancels its job", async () => {
    const program = `
async def main():
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    running = asyncio.ensure_future(
        client.run("import time; time.sleep(600)", metadata={"test": "cancel"}, startup_timeout=600)
    )
    items = []
    while not items:
        query = {"metadata": "test:cancel", "status": "running"}
        items = (await client.request("GET", "/executions", query))["items"]
    running.cancel()
    end = (await asyncio.gather(running, return_exceptions=True))[0]
    record = await client.wait(items[0]["execution_id"])
    print(json.dumps([type(end).__name__, record["status"], threading.active_count()]))
asyncio.run(main())`;
    const [end, status] = await python.run<[string, string]>(program, service.url, key);
    expect([end, status]).toEqual(["CancelledError", "cancelled"]);
  });
}
