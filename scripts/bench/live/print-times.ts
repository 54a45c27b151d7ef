import { Agent, request } from "undici";
import { watch } from "./watch.ts";

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

/** Milliseconds from each print of a running job to the client that follows it. */
export async function printTimes(url: string, lines: number): Promise<number[]> {
  await using ends = new AsyncDisposableStack();
  const dispatcher = ends.adopt(new Agent(), (agent) => agent.destroy());
  const answer = await request(`${url}/execute/async`, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code: program(lines), timeout: 30 + lines }),
  });
  const { job_id } = (await answer.body.json()) as { job_id: string };
  const times: number[] = [];
  let begun = "";
  for await (const { event, data } of watch(url, job_id, { dispatcher })) {
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
