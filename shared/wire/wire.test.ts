import { expect, test } from "vitest";
import { z } from "zod";
import { fieldErrors } from "./errors.ts";
import { Tool, tools } from "./executions.ts";
import { JobTypeName, VersionTag } from "./job-types.ts";
import { limits } from "./limits.ts";
import { ExecuteRequest } from "./submissions.ts";

const Schema = z.strictObject({ code: z.string(), numbers: z.array(z.int()) });
const faultsOf = (value: unknown) => fieldErrors(Schema.safeParse(value).error!);

test("a hundred of a hundred thousand unknown fields are named", () => {
  const unknown = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`field${i}`, i]));
  const faults = faultsOf({ code: "", numbers: [], ...unknown });
  expect(faults).toHaveLength(100);
  expect(faults[0]).toEqual({ path: "field0", message: "is not a field of this request" });
});

test("a hundred of a hundred thousand bad values are named, those of other fields first", () => {
  const faults = faultsOf({ numbers: Array.from({ length: 100_000 }, () => "") });
  expect(faults).toHaveLength(100);
  expect(faults[0]).toEqual({ path: "code", message: "is required" });
});

test("a long field name is cut", () => {
  const [fault] = faultsOf({ code: "", numbers: [], ["x".repeat(1_000_000)]: 1 });
  expect(fault?.path).toBe("x".repeat(256));
});

test("a missing field and a field of the wrong type have different messages", () => {
  const Typed = z.object({
    text: z.string(),
    count: z.int(),
    map: z.record(z.string(), z.string()),
    list: z.array(z.string()),
    own: z.string("must be a name"),
  });
  const messagesOf = (value: unknown) =>
    fieldErrors(Typed.safeParse(value).error!).map(({ path, message }) => `${path} ${message}`);
  expect(messagesOf({ count: 1.5, map: [], list: null, own: 1 })).toEqual([
    "text is required",
    "count must be of type integer, not number",
    "map must be of type object, not array",
    "list must be of type array, not null",
    "own must be a name",
  ]);
  expect(messagesOf(null)).toEqual(["(body) must be of type object, not null"]);
});

test("a bad key of a map gets the message of the key's own rule", () => {
  const Map = z.object({ map: z.record(z.string().regex(/^a/, "must begin with a"), z.string()) });
  expect(fieldErrors(Map.safeParse({ map: { b: "" } }).error!)).toEqual([
    { path: "map.b", message: "must begin with a" },
  ]);
});

test.each(["v0.0.0", "v1.2.3", "v1.0.0-rc.1", "v1.0.0-0", "v1.0.0-a-b.0a"])(
  "%s is a version tag",
  (tag) => {
    expect(VersionTag.safeParse(tag).success).toBe(true);
  },
);

test.each([
  "",
  "1.2.3",
  "v1.2",
  "v01.0.0",
  "v1.0.0-",
  "v1.0.0-01",
  "v1.0.0-a..b",
  "v1.0.0+1",
  "v1.0.0\n",
])("%j is not a version tag", (tag) => {
  expect(VersionTag.safeParse(tag).success).toBe(false);
});

test.each(["a", "science", "py3.12", "a_b", "a__b", "a---b", "7"])(
  "%s names a job type, and an image",
  (name) => {
    expect(JobTypeName.safeParse(name).success).toBe(true);
  },
);

test.each(["", "A", "a b", "-a", "a-", "a..b", "a.-b", "a___b", "a/b", "é", "x".repeat(64)])(
  "%j is not the name of a job type",
  (name) => {
    expect(JobTypeName.safeParse(name).success).toBe(false);
  },
);

const request = z.object(tools);

test.each(["f", "_f", "get_price2", "match", "type_", "a".repeat(64)])("%s is a name", (name) => {
  expect(Tool.safeParse({ name }).success).toBe(true);
});

test.each([
  "",
  "1f",
  "a-b",
  "a.b",
  "None",
  "async",
  "len",
  "ToolError",
  "__f",
  "a".repeat(65),
  "f\n",
])("%j is no name", (name) => {
  expect(Tool.safeParse({ name }).success).toBe(false);
});

test("the definitions are bounded together", () => {
  const sized = (bytes: number) => [{ name: "f", description: "x".repeat(bytes) }];
  const rest = JSON.stringify(sized(0)).length;
  const most = limits.toolsMaxBytes - rest;
  expect(request.safeParse({ tools: sized(most) }).success).toBe(true);
  expect(request.safeParse({ tools: sized(most + 1) }).success).toBe(false);
});

test("stdin has a limit in bytes of UTF-8, not in characters", () => {
  const faultsOfStdin = (stdin: string) => ExecuteRequest.safeParse({ code: "1", stdin }).error;
  const most = "é".repeat(limits.stdinMaxBytes / 2);
  expect(faultsOfStdin(most)).toBeUndefined();
  expect(fieldErrors(faultsOfStdin(`${most}a`)!)).toEqual([
    { path: "stdin", message: `must be at most ${limits.stdinMaxBytes} bytes` },
  ]);
});
