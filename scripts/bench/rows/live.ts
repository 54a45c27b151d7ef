import { Agent, request } from "undici";
import type { JobEvent } from "../../../shared/wire/client/events.ts";
import type { Row } from "../row.ts";

/** Lines are far enough apart that none waits for the one before it. */
const shortestPauseS = 0.15;
const longestPauseS = 0.35;

/** Each line is the time at which it was printed. */
const program = (lines: number): string => `
import random, time
for _ in range(${lines}):
    time.sleep(random.uniform(${shortestPauseS}, ${longestPauseS}))
    print(time.time() * 1000, flush=True)
`;

export const live: Row = {
  name: "live",
  what: "a running job's print to the client that follows it by Server-Sent Events",
  goal: "p50 ≤ 40 ms",
  measure: async (world) => {
    await using service = await world.startService();
    await printTimes(service.url, world.samples(20));
    const samples = await printTimes(service.url, world.samples(150));
    return [{ name: "print to client", unit: "ms", samples }];
  },
  reaches: (of) => of("print to client").p50 <= 40,
};

/** Milliseconds from each print of a running job to the client that follows it. */
async function printTimes(url: string, lines: number): Promise<number[]> {
  await using ends = new AsyncDisposableStack();
  const dispatcher = ends.adopt(new Agent(), (agent) => agent.destroy());
  const answer = await request(`${url}/execute/async`, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code: program(lines), timeout: 30 + lines }),
  });
  const { job_id } = (await answer.body.json()) as { job_id: string };
  const { statusCode, body } = await request(`${url}/jobs/${job_id}/events`, {
    dispatcher,
    headers: { accept: "text/event-stream", "accept-encoding": "identity" },
    bodyTimeout: 0,
  });
  body.setEncoding("utf8");
  if (statusCode !== 200) throw new Error(`events: ${statusCode} ${await body.text()}`);
  const times: number[] = [];
  let begun = "";
  for await (const { event, data } of eventsIn(body as AsyncIterable<string>)) {
    const now = performance.timeOrigin + performance.now();
    if (event === "stdout") {
      const whole = (begun + data.text).split("\n");
      begun = whole.pop() ?? "";
      times.push(...whole.map((line) => now - Number(line)));
    }
    if (event === "end" && data.status !== "succeeded") {
      throw new Error(`the job ended as ${JSON.stringify(data)}`);
    }
  }
  if (times.length !== lines) throw new Error(`${times.length} of ${lines} lines came`);
  return times;
}

async function* eventsIn(stream: AsyncIterable<string>): AsyncGenerator<JobEvent> {
  let waiting = "";
  for await (const piece of stream) {
    const blocks = (waiting + piece).split("\n\n");
    waiting = blocks.pop() ?? "";
    for (const block of blocks) {
      const [, event] = /^event: (.*)$/m.exec(block) ?? [];
      const [, data] = /^data: (.*)$/m.exec(block) ?? [];
      if (event && data) yield { event, data: JSON.parse(data) as unknown } as JobEvent;
    }
  }
}
