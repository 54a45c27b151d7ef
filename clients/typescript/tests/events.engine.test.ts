import { expect, test } from "vitest";
import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { startCuttingProxy } from "../../../scripts/testing/cutting-proxy.ts";
import { service, useTestService } from "../../../scripts/testing/use-test-service.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { connect, type JobEvent } from "../src/index.ts";

needsThroughout("python3");

useTestService();

const code = `import sys, time
for n in range(20):
    print("zeile ü", n, flush=True)
    print("err", n, file=sys.stderr, flush=True)
    time.sleep(0.05)`;
const lines = (prefix: string) => Array.from({ length: 20 }, (_, n) => `${prefix} ${n}\n`).join("");

type Told = { event: string; data: { text?: string; status?: string } };
const textOf = (events: readonly Told[], name: string) =>
  events.map(({ event, data }) => (event === name ? data.text : "")).join("");

function expectWhole(events: readonly Told[]): void {
  expect(textOf(events, "stdout")).toBe(lines("zeile ü"));
  expect(textOf(events, "stderr")).toBe(lines("err"));
  expect(events.at(-1)).toMatchObject({ event: "end", data: { status: "succeeded" } });
}

test("a stream of a running job brings its whole output once, over connections that break", async () => {
  await using proxy = await startCuttingProxy(service.url);
  const airlock = connect({ url: proxy.url });
  const { job_id } = await airlock.submit({ code, startup_timeout: 600 });
  // Every answer is longer: its head and the end of the job are.
  proxy.cutNext(...[200, 700, 900, 1_000, 1_000].map((answer) => ({ answer })));
  const events: JobEvent[] = [];
  for await (const event of airlock.stream(job_id)) events.push(event);
  expectWhole(events as Told[]);
  expect(proxy.cuts()).toBe(5);

  // Again, of the job that has ended.
  const python = `print(json.dumps(list(airlock.connect(sys.argv[1]).stream(sys.argv[2]))))`;
  proxy.cutNext(...[300, 900, 1_000].map((answer) => ({ answer })));
  expectWhole(await pythonClient().run<Told[]>(python, proxy.url, job_id));
  expect(proxy.cuts()).toBe(8);
});
