import { expect, test } from "vitest";
import { connect, ConnectionError, NoAnswerError } from "../src/index.ts";

/** A service that answers the given paths and never answers others; and the paths that it was asked for. */
function service(answers: Record<string, () => Promise<Response> | Response>) {
  const asked: string[] = [];
  const fetchIt = async (input: unknown, init?: RequestInit) => {
    const { pathname } = new URL(String(input));
    asked.push(pathname);
    return (
      answers[pathname]?.() ??
      new Promise<Response>((_resolve, reject) => {
        init?.signal?.addEventListener("abort", () => reject(init.signal!.reason as Error));
      })
    );
  };
  return { asked, airlock: connect({ url: "http://airlock.test", fetch: fetchIt }) };
}

const submitted = () => Response.json({ job_id: "j", status: "queued" });

test.concurrent.each([
  ["a wait", () => service({}).airlock.wait("j", { waitS: 0 })],
  ["a run whose submission is not answered", () => service({}).airlock.run("1", { waitS: 0 })],
  [
    "a run whose output does not come",
    () => service({ "/execute/async": submitted }).airlock.run("1", { waitS: 0, onStdout() {} }),
  ],
])("%s ends after waitS", async (_what, call) => {
  await expect(call()).rejects.toThrow(NoAnswerError);
});

test.concurrent("an error of a run names the job", async () => {
  const { airlock } = service({
    "/execute/async": submitted,
    "/jobs/j/result": () => Promise.reject(new TypeError("terminated")),
  });
  const error: unknown = await airlock.run("1", { retries: 0 }).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(ConnectionError);
  expect(error).toMatchObject({ jobId: "j" });
});

test.concurrent("a run that is aborted while it submits cancels the job", async () => {
  const leaving = new AbortController();
  const { airlock, asked } = service({
    "/execute/async": () => {
      leaving.abort(new Error("gone"));
      return submitted();
    },
    "/jobs/j/cancel": () => Response.json({}),
  });
  await expect(airlock.run("1", { signal: leaving.signal })).rejects.toThrow("gone");
  expect(asked).toEqual(["/execute/async", "/jobs/j/cancel"]);
});

test.concurrent("a run that is aborted ends within seconds, even if the service does not answer", async () => {
  for (const answers of [{}, { "/execute/async": submitted }]) {
    const leaving = new AbortController();
    const { airlock, asked } = service(answers);
    const running = airlock.run("1", { signal: leaving.signal });
    while (asked.length < Object.keys(answers).length + 1) await Promise.resolve();
    leaving.abort(new Error("gone"));
    await expect(running).rejects.toThrow("gone");
  }
});

test.concurrent("a callback that throws ends the run, and cancels its job", async () => {
  const event = { id: "1", event: "stdout", data: { text: "a" } };
  const { airlock, asked } = service({
    "/execute/async": submitted,
    "/jobs/j/events": () => new Response(`${JSON.stringify(event)}\n`),
    "/jobs/j/cancel": () => Response.json({}),
  });
  const onStdout = () => {
    throw new RangeError("mine");
  };
  await expect(airlock.run("1", { onStdout })).rejects.toThrow("mine");
  expect(asked.at(-1)).toBe("/jobs/j/cancel");
});
