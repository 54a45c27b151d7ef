import { createServer } from "node:net";
import { Webhook } from "standardwebhooks";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { listen } from "../../../shared/testing/http.ts";
import { problemCodes } from "../../../shared/wire/errors.ts";
import {
  type Airlock,
  AirlockError,
  connect,
  ConnectionError,
  InvalidRequestError,
  NoAnswerError,
  problemClasses,
  ProblemError,
  verifyWebhook,
  WebhookError,
} from "../src/index.ts";

describe("errors", () => {
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

  test.each(["", "Search", "*a", "ü"])("the tenant %j is refused before it is sent", (tenant) => {
    const begin = () => connect({ url: "http://airlock.test", tenant });
    expect(begin).toThrow(AirlockError);
    expect(begin).toThrow(`"${tenant}" is not the name of a tenant`);
  });

  test("on Node the address and its key come from the environment, the key for no other address", async () => {
    const sent: (string | null)[] = [];
    const fetchIt = async (input: unknown, init?: RequestInit) => {
      sent.push(String(input), new Headers(init?.headers).get("Authorization"));
      return Response.json({});
    };
    vi.stubEnv("AIRLOCK_URL", "http://env.test");
    vi.stubEnv("AIRLOCK_KEY", "k1");
    onTestFinished(() => void vi.unstubAllEnvs());
    await connect({ fetch: fetchIt }).api.getHealth();
    await connect({ fetch: fetchIt, url: "http://other.test" }).api.getHealth();
    expect(sent).toEqual(["http://env.test/health", "Bearer k1", "http://other.test/health", null]);
    // Programs in JavaScript may pass null.
    await connect({ fetch: fetchIt, url: "http://other.test", key: null as never }).api.getHealth();
    expect(sent.at(-1)).toBeNull();
    vi.stubEnv("AIRLOCK_URL", "");
    expect([connect().url, connect("http://a.test/").url]).toEqual([
      "http://127.0.0.1:8080",
      "http://a.test",
    ]);
    // On a page, a bundler's `process` does not count.
    vi.stubGlobal("location", { origin: "http://page.test" });
    onTestFinished(() => void vi.unstubAllGlobals());
    expect(connect().url).toBe("http://page.test");
  });

  test("an address that is none is refused, and a page of the console stands for its service", () => {
    expect(() => connect({ url: "foo" })).toThrow("is not the address of a service");
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
  ])("%s is an error with one message", async (_what, page) => {
    const { airlock, asked } = service(page(), page());
    await expect(airlock.run("1")).rejects.toThrow("not as Airlock does");
    expect(asked).toHaveLength(1);
  });

  const html = { "Content-Type": "text/html; charset=utf-8" };

  test.each<[string, (airlock: Airlock) => Promise<unknown>]>([
    ["files.upload", ({ files }) => files.upload("a", "b")],
    ["files.get", ({ files }) => files.get("f")],
    ["artifacts.open", ({ artifacts }) => artifacts.open("j", "a")],
    ["api", ({ api }) => api.getHealth()],
    ["stream", ({ stream }) => stream("j").next()],
  ])("a page instead of the answer to %s is an error with a message", async (_name, call) => {
    const { airlock, asked } = service(new Response("<html>", { headers: html }));
    await expect(call(airlock)).rejects.toThrow("not as Airlock does");
    expect(asked).toHaveLength(1);
  });

  test("a file may be a page, and so may the service's own pages", async () => {
    const attached = { ...html, "Content-Disposition": "attachment" };
    const { airlock } = service(
      new Response("<html>", { headers: attached }),
      new Response("<html>", { headers: html }),
    );
    expect(await airlock.artifacts.get("j", "a.html")).toHaveLength(6);
    expect((await airlock.request("/docs")).status).toBe(200);
  });

  test.each<[string, (airlock: Airlock) => Promise<unknown>, string]>([
    ["NaN", ({ run }) => run({ code: "1", input_data: { a: [NaN] } }), "0 is NaN"],
    ["a bigint", ({ submit }) => submit({ code: "1", input_data: { a: 1n } }), "BigInt"],
    ["a stream", ({ files }) => files.upload("a", new ReadableStream() as never), "is a Blob"],
    ["a name", ({ artifacts }) => artifacts.get("j", "../../../health"), '".." cannot be an id'],
    ["an id", ({ cancel }) => cancel(".."), '".." cannot be an id'],
    ["a header", ({ wait }) => wait("j", { headers: { "X-A": "secret…" } }), "no header can"],
  ])("%s that cannot be sent unchanged is refused with a message", async (_what, call, words) => {
    const { airlock, asked } = service();
    const error: unknown = await call(airlock).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(AirlockError);
    expect((error as Error).message).toContain(words);
    expect((error as Error).message).not.toContain("secret");
    expect(asked).toEqual([]);
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
});

/** What the client makes of a file whose answer has these bytes. */
async function fetched(answer: string): Promise<number> {
  const server = createServer((socket) => {
    socket.once("data", () => socket.end(answer));
  });
  await using service = await listen(server);
  return (await connect({ url: service.url, retries: 0 }).files.get("f")).length;
}

test.each([
  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
])("an empty file is an answer like any other: %j", async (answer) => {
  expect(await fetched(answer)).toBe(0);
});

test.each([
  "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
])("an answer whose end is not said or missing counts as broken: %j", async (answer) => {
  await expect(fetched(answer)).rejects.toThrow(ConnectionError);
});

describe("leaving", () => {
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
    const error: unknown = await airlock
      .run("1", { retries: 0 })
      .catch((caught: unknown) => caught);
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
});

const [oldSecret, secret] = ["old", "new"].map(
  (name) => `whsec_${Buffer.from(`${name} secret of 32 bytes`.padEnd(32, "+")).toString("base64")}`,
) as [string, string];
const body = '{"type":"execution.succeeded","timestamp":"2026-11-22T00:00:00Z","data":{"ü":1}}';
const now = new Date("2026-11-22T00:00:10Z");

function sign(secrets: string[], at = now): Record<string, string> {
  const signatures = secrets.map((one) => new Webhook(one).sign("msg_1", at, body));
  return {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(at.getTime() / 1000),
    "webhook-signature": signatures.join(" "),
  };
}
const options = { nowMs: now.getTime() };

test("what the reference library signs is verified, with either secret of a rotation", async () => {
  for (const secrets of [secret, [secret], [oldSecret, secret]]) {
    const event = await verifyWebhook(body, sign([secret]), secrets, options);
    expect(event).toMatchObject({ type: "execution.succeeded", data: { ü: 1 } });
  }
  const bytes = new TextEncoder().encode(body);
  await verifyWebhook(bytes, new Headers(sign([oldSecret, secret])), secret, options);
  await verifyWebhook(body, { ...sign([secret]), "Webhook-Id": ["msg_1"] }, secret, options);
});

test.each([
  ["another body", "{}", sign([secret]), "No signature"],
  ["another secret", body, sign([oldSecret]), "No signature"],
  ["another id", body, { ...sign([secret]), "webhook-id": "msg_2" }, "No signature"],
  ["an old delivery", body, sign([secret], new Date("2026-11-21T23:55:00Z")), "more than 300 s"],
  ["a future delivery", body, sign([secret], new Date("2026-11-22T00:05:11Z")), "more than 300 s"],
  ["no time", body, { ...sign([secret]), "webhook-timestamp": "x" }, "more than 300 s"],
  ["no signature", body, { ...sign([secret]), "webhook-signature": "" }, "is missing"],
  ["another version", body, { ...sign([secret]), "webhook-signature": "v2,AA==" }, "No signature"],
  ["no Base64", body, { ...sign([secret]), "webhook-signature": "v1,*" }, "No signature"],
])("%s is refused", async (_, text, headers, message) => {
  const verified = verifyWebhook(text, headers, secret, options);
  await expect(verified).rejects.toThrow(WebhookError);
  await expect(verified).rejects.toThrow(message);
});
