import { readFileSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:net";
import { describe, expect, test } from "vitest";
import {
  type Answer,
  expectSameAnswer,
  expectUnchanged,
  nobodys,
  type Things,
} from "./contract/isolation.ts";
import { reservePort } from "./reserve-port.ts";

const id = (digit: string): string => `00000000-0000-7000-8000-${digit.repeat(12)}`;
const others: Things = {
  tenant: "a-1",
  job: id("1"),
  waiting: id("2"),
  batch: id("3"),
  child: id("4"),
  file: id("5"),
  session: id("6"),
  letter: "176000000000001",
  delivery: "176000000000002",
  heard: "176000000000003",
  event: "9.1.3",
};
const nobody = nobodys(others);

function answer(
  carried: Things,
  { status = 404, text = "", headers = {} }: { status?: number; text?: string; headers?: object },
): Answer {
  const type = { "Content-Type": "application/problem+json" };
  return { carried, reply: { status, text, headers: new Headers({ ...type, ...headers }) } };
}
const notFound = (job: string, at: string): string =>
  `{"detail":"There is no job ${job}.","at":"2026-01-01T00:00:0${at}.000Z","correlation_id":"${id(at)}"}`;
const compare = (told: Parameters<typeof answer>[1]) => () =>
  expectSameAnswer(
    "GET /jobs/{id}",
    { path: `/jobs/${others.job}` },
    answer(others, { text: notFound(others.job, "8"), ...told }),
    answer(nobody, { text: notFound(nobody.job, "9") }),
  );

test("answers are the same if they differ in what was asked for, in times and in new ids", () => {
  expect(compare({})).not.toThrow();
});

/** What a comparison shows: the values that differ. */
function shown(comparison: () => void): { told: string; expected: string } {
  try {
    comparison();
  } catch (error) {
    const { actual, expected } = error as { actual: unknown; expected: unknown };
    return { told: JSON.stringify(actual), expected: JSON.stringify(expected) };
  }
  throw new Error("the answers count as the same");
}

describe("an answer that tells something of another tenant is shown:", () => {
  const text = notFound(others.job, "8");
  test.each([
    ["what its job printed", { text: `${text} output-of-a-1` }, "output-of-a-1"],
    ["another status", { status: 403 }, "403"],
    ["another header", { headers: { ETag: '"1"' } }, "etag"],
    ["another form", { headers: { "Content-Type": "text/plain" } }, "text/plain"],
    ["one more field", { text: text.replace("{", '{"exists":true,') }, "exists"],
    ["one more id", { text: text.replace("}", `,"batch_id":"${id("7")}"}`) }, "batch_id"],
  ])("%s", (_what, given, leak) => {
    const { told, expected } = shown(compare(given));
    expect(told).toContain("GET /jobs/{id}");
    expect(told).toContain(leak);
    expect(expected).not.toContain(leak);
  });
});

test("an answer that another tenant's work has changed is shown by its path; the end of listening may come nearer", () => {
  const before = { "/usage": '{"queued":1}', "/webhooks/events": '{"items":[],"listening_s":30}' };
  const later = { ...before, "/webhooks/events": '{"items":[],"listening_s":29}' };
  expect(() => expectUnchanged(before, later)).not.toThrow();
  const leak = { ...later, "/usage": '{"queued":2}' };
  expect(shown(() => expectUnchanged(before, leak)).told).toContain(
    JSON.stringify({ "/usage": leak["/usage"] }).slice(1, -1),
  );
});

test("a reserved port is free, and not one that the kernel gives to others", async () => {
  const range = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8");
  const [first, last] = range.split("\t").map(Number) as [number, number];
  const port = await reservePort();
  expect(port < first || port > last).toBe(true);
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  server.close();
});

test("no port is reserved twice, even if nobody listens on it", async () => {
  const ports = await Promise.all(Array.from({ length: 500 }, () => reservePort()));
  expect(new Set(ports).size).toBe(500);
});
