import { expect, test } from "vitest";
import { problemCodes } from "../../../shared/wire/errors.ts";
import {
  AirlockError,
  connect,
  InvalidRequestError,
  NoAnswerError,
  ProblemError,
  problemClasses,
} from "../src/index.ts";

/** A service that answers in turn, and what it was asked. */
function service(...answers: (Response | Error)[]) {
  const asked: Request[] = [];
  const fetchIt = (input: string | URL | Request, init?: RequestInit) => {
    asked.push(new Request(input, init));
    const answer = answers.shift() ?? Response.json({ job_id: "1", status: "queued" });
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  };
  return { asked, airlock: connect({ url: "http://airlock.test/", key: "k", fetch: fetchIt }) };
}

const refusal = (status: number, fields: object, headers = {}) =>
  Response.json({ status, detail: "No.", correlation_id: "c", ...fields }, { status, headers });
const atOnce = { "Retry-After": "0" };

test("every code of a problem has a class of its own", async () => {
  expect(Object.keys(problemClasses)).toEqual(problemCodes);
  expect(new Set(Object.values(problemClasses)).size).toBe(problemCodes.length);
  for (const code of problemCodes) {
    const { airlock } = service(refusal(400, { code, job_id: "j" }));
    const call = airlock.api.deleteDeadLetter({ id: 1 }, { retries: 0 });
    const error = await call.catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(problemClasses[code]);
    expect(error).toMatchObject({
      name: problemClasses[code].name,
      code,
      correlationId: "c",
      jobId: "j",
      status: 400,
    });
  }
});

test.each(["k\n", "“k”", "a b", "", "k…"])(
  "the key %j is refused before it is sent, and not shown",
  (key) => {
    const begin = () => connect({ url: "http://airlock.test", key });
    expect(begin).toThrow(AirlockError);
    expect(begin).toThrow(/^The API key is empty or has a character/);
  },
);

test("an address that is none is refused, and a page of the console stands for its service", () => {
  expect(() => connect({ url: "foo" })).toThrow("is no address of a service");
  expect(connect({ url: "http://a.test/x/console/jobs/1" }).url).toBe("http://a.test/x");
  expect(connect({ url: "http://console" }).url).toBe("http://console");
});

test.each([
  [
    "a page for everything",
    () => new Response("<html>", { headers: { "Content-Type": "text/html" } }),
  ],
  [
    "a page with 404",
    () => new Response("<html>", { status: 404, headers: { "Content-Type": "text/html" } }),
  ],
])("%s is told in words, once", async (_what, page) => {
  const { airlock, asked } = service(page(), page());
  await expect(airlock.run("1")).rejects.toThrow("not as Airlock does");
  expect(asked).toHaveLength(1);
});

test("a wait has its bound, also where the service is silent", async () => {
  const fetchIt = (_: unknown, init?: RequestInit) =>
    new Promise<Response>((_resolve, reject) => {
      init?.signal?.addEventListener("abort", () => reject(init.signal!.reason as Error));
    });
  const airlock = connect({ url: "http://airlock.test", fetch: fetchIt });
  await expect(airlock.wait("1", { waitS: 0 })).rejects.toThrow(NoAnswerError);
});

test("events that end at once, again and again, end in an error", async () => {
  const empty = () => new Response("", { headers: { "Content-Type": "application/x-ndjson" } });
  const fetchIt = () => Promise.resolve(empty());
  const airlock = connect({ url: "http://airlock.test", retries: 1, fetch: fetchIt });
  await expect(airlock.stream("1").next()).rejects.toThrow("ended before the job's end");
});

test("the message names each field that is wrong", async () => {
  const errors = [{ path: "timeout", message: "must be at most 60" }];
  const { airlock } = service(refusal(400, { code: "invalid_request", errors }));
  const submitted = airlock.submit("");
  await expect(submitted).rejects.toThrow(InvalidRequestError);
  await expect(submitted).rejects.toThrow("No.\n  timeout: must be at most 60");
});

test("a submission is repeated with the same idempotency key, after Retry-After", async () => {
  const { airlock, asked } = service(
    refusal(429, { code: "rate_limited" }, atOnce),
    refusal(503, { code: "unavailable", job_id: "1" }, atOnce),
    new Response("bad gateway", { status: 502, headers: atOnce }),
    new TypeError("terminated"),
  );
  await airlock.submit("print(1)");
  const keys = asked.map(({ headers }) => headers.get("Idempotency-Key"));
  expect(asked).toHaveLength(5);
  expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
  expect(new Set(keys).size).toBe(1);
  expect(asked[0]?.headers.get("Authorization")).toBe("Bearer k");
  expect(asked[0]?.url).toBe("http://airlock.test/execute/async");
});

test("the caller's own key is left alone", async () => {
  const { airlock, asked } = service();
  await airlock.submit({ code: "print(1)", idempotency_key: "mine" });
  expect(asked[0]?.headers.has("Idempotency-Key")).toBe(false);
});

test("what may have been done is not repeated without a key", async () => {
  const calls = [
    () => service(new TypeError("terminated")),
    () => service(refusal(503, { code: "unavailable", job_id: "1" })),
    () => service(new Response("", { status: 504 })),
    () => service(refusal(500, { code: "internal" })),
  ];
  for (const start of calls) {
    const { airlock, asked } = start();
    await expect(airlock.api.execute({ executeRequest: { code: "1" } })).rejects.toThrow(
      AirlockError,
    );
    expect(asked).toHaveLength(1);
  }
  const { airlock, asked } = service(refusal(503, { code: "unavailable" }, atOnce));
  await airlock.api.execute({ executeRequest: { code: "1" } });
  expect(asked).toHaveLength(2);
});

test("an answer that is not Airlock's is a ProblemError without a code", async () => {
  const { airlock } = service(new Response("<html>nginx</html>", { status: 403 }));
  const error: unknown = await airlock.api.getHealth().catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(ProblemError);
  expect(error).toMatchObject({ status: 403, code: undefined });
});

test("a try without an answer ends after timeoutMs; the caller's signal ends the call", async () => {
  const never: typeof fetch = (_, init) =>
    new Promise((_resolve, reject) => {
      init?.signal?.addEventListener("abort", () => reject(init.signal?.reason as Error));
    });
  const airlock = connect({ url: "http://airlock.test", timeoutMs: 5, retries: 1, fetch: never });
  await expect(airlock.api.getHealth()).rejects.toThrow(NoAnswerError);
  const signal = AbortSignal.abort(new Error("mine"));
  await expect(airlock.api.getHealth({ signal })).rejects.toThrow("mine");
});
