import * as fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { isJsonObject, JsonError, measureJson, parseJson, plainNumber } from "./json.ts";

const roundTrip = (text: string): string => JSON.stringify(parseJson(text, 512));

describe("numbers stay as they were written", () => {
  test.each([
    "0",
    "-0",
    "-0.0",
    "1",
    "1.0",
    "1.10",
    "12345678901234567890",
    "9007199254740993",
    "0.1",
    "1e5",
    "1E+05",
    "1e400",
    "-1e-400",
    "3.141592653589793238462643383279",
  ])("%s", (numeral) => {
    expect(roundTrip(numeral)).toBe(numeral);
    expect(roundTrip(`{"a":[${numeral},{"b":${numeral}}]}`)).toBe(
      `{"a":[${numeral},{"b":${numeral}}]}`,
    );
  });

  const digits = fc.stringMatching(/^[0-9]{1,25}$/);
  const numeral = fc
    .tuple(
      fc.constantFrom("", "-"),
      fc.stringMatching(/^(0|[1-9][0-9]{0,25})$/),
      fc.option(digits, { nil: undefined }),
      fc.option(fc.tuple(fc.constantFrom("e", "E", "e+", "E-"), digits), { nil: undefined }),
    )
    .map(([sign, whole, fraction, exponent]) =>
      [sign, whole, fraction === undefined ? "" : `.${fraction}`, ...(exponent ?? [])].join(""),
    );
  const text = fc.string({ unit: "binary" }).map((value) => JSON.stringify(value));
  // JavaScript moves keys that look like array indices to the front, so keys here never do.
  const key = fc.string({ unit: "binary" }).map((value) => JSON.stringify(`k${value}`));
  const { json } = fc.letrec<{ json: string }>((tie) => ({
    json: fc.oneof(
      { depthSize: "small" },
      numeral,
      text,
      fc.constantFrom("true", "false", "null", "{}", "[]"),
      fc.array(tie("json")).map((items) => `[${items.join(",")}]`),
      fc
        .uniqueArray(fc.tuple(key, tie("json")), { selector: ([name]) => name })
        .map((members) => `{${members.map((member) => member.join(":")).join(",")}}`),
    ),
  }));

  test("in any document", () => {
    fc.assert(
      fc.property(json, (document) => {
        expect(roundTrip(document)).toBe(document);
      }),
    );
  });

  test("plainNumber converts a number kept as written, and leaves other values unchanged", () => {
    expect(plainNumber(parseJson("30.0", 1))).toBe(30);
    expect(plainNumber(parseJson("1e400", 1))).toBe(Infinity);
    expect(plainNumber(30)).toBe(30);
    expect(plainNumber("30.0")).toBe("30.0");
    const nested = { a: 1 };
    expect(plainNumber(nested)).toBe(nested);
  });
});

test("__proto__ and constructor are keys like any other", () => {
  const document = '{"__proto__":{"admin":true},"constructor":{"prototype":1}}';
  const value = parseJson(document, 8);
  expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  expect(value).not.toHaveProperty("admin");
  expect(JSON.stringify(value)).toBe(document);
});

test.each([
  "",
  " ",
  "{",
  "[1,]",
  "{'a':1}",
  "NaN",
  "Infinity",
  "01",
  "1.",
  "+1",
  "[01, 1.0]",
  "[1., 1.0]",
  "[1-2, 1.0]",
  "{1.0: 1}",
  "{1.0 \n: 1}",
  "{1.0: 1.0}",
  "[1.0 1.0]",
  "1.0 1.0",
  '"\n"',
  "\u{feff}1",
])("%j is refused as JsonError", (text) => {
  expect(() => parseJson(text, 8)).toThrow(JsonError);
});

test("an error message quotes the original text, even if a number in it is kept as written", () => {
  expect(() => parseJson("[1.0,]", 8)).toThrow(/"\[1\.0,\]" is not valid JSON/);
});

test("one number kept as written does not slow down parsing millions of small values", () => {
  const text = `[${"{},".repeat(2_000_000)}1.0]`;
  // In CPU time, the less of two, as others may be at work on the machine.
  const timed = (work: () => unknown): number => {
    const once = (): number => {
      const from = process.cpuUsage();
      work();
      return process.cpuUsage(from).user;
    };
    return Math.min(once(), once());
  };
  const plain = timed(() => JSON.parse(text) as unknown);
  // At most twice as long, measured; with a reviver ten times.
  expect(timed(() => parseJson(text, 8)) / plain).toBeLessThan(5);
});

test("a number that equals a placeholder of the parser keeps its value", () => {
  const text =
    "[1.0,1000000000000000,1e+21,1000000000000001,-1000000000000000,[2.0],1000000000000002.0]";
  expect(roundTrip(text)).toBe(text);
  expect(parseJson(text, 8)).toMatchObject({ 1: 1e15, 2: 1e21, 3: 1e15 + 1, 4: -1e15 });
});

describe("nesting", () => {
  test("is refused above the limit, by its depth and the limit", () => {
    expect(roundTrip("[".repeat(512) + "]".repeat(512))).toHaveLength(1024);
    expect(() => parseJson("[".repeat(513) + "]".repeat(513), 512)).toThrow(
      "nested 513 deep; the limit is 512",
    );
  });

  test("of a million levels overflows no stack", () => {
    const deep = '{"a":'.repeat(1_000_000);
    expect(() => parseJson(deep, 512)).toThrow(JsonError);
  });

  test.each([
    ["1", 0],
    ["[]", 1],
    ['{"a":[{}]}', 3],
    ['"[[[["', 0],
    ['["\\"[", "\\\\", []]', 2],
    ["[][][]", 1],
  ])("of %s is %d", (text, depth) => {
    expect(measureJson(text).depth).toBe(depth);
  });

  test("is the depth of the value", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(measureJson(JSON.stringify(value)).depth).toBe(depthOf(value));
      }),
    );
  });
});

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

test("only a plain object is a JSON object", () => {
  expect(["{}", '{"a":1.0}'].map((text) => isJsonObject(parseJson(text, 8)))).toEqual([true, true]);
  const others = ["[]", "null", "1", "1.0", '"{}"', "true"];
  for (const text of others) expect(isJsonObject(parseJson(text, 8))).toBe(false);
});

describe("the number of keys and values", () => {
  test.each([
    ["1", 1],
    ["[]", 1],
    ["[1,2]", 3],
    ['{"a":[-1.5e3,true,null],"b":"x[1,{}]\\"y"}', 8],
    [" [ false , { } ] ", 3],
  ])("of %s is %i", (text, values) => {
    expect(measureJson(text).values).toBe(values);
  });

  test("has the limit that the caller sets, checked before the text is parsed", () => {
    const text = `[${"{},".repeat(98)}{}]`;
    const parse = vi.spyOn(JSON, "parse");
    expect(() => parseJson(text, 8, 99)).toThrow("it holds 100 keys and values; the limit is 99");
    expect(parse).not.toHaveBeenCalled();
    parse.mockRestore();
    expect(parseJson(text, 8, 100)).toHaveLength(99);
    expect(parseJson(text, 8)).toHaveLength(99);
  });
});
