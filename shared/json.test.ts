import * as fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { concatBytes, parseBytes } from "./bytes.ts";
import {
  canonicalJson,
  canonicalJsonInPieces,
  checkJson,
  isJsonObject,
  JsonError,
  JsonText,
  parseJson,
  parseJsonInPieces,
  parsePlainJson,
  plainNumber,
  writeJson,
  writeJsonInPieces,
} from "./json.ts";
import { letOthersRun, takeBytes, turnTaker } from "./turns.ts";
import { countTurns } from "./testing/test-file.ts";

const roundTrip = (text: string): string => JSON.stringify(parseJson(text, { depth: 512 }));

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

  test("a short text has the value and the error that it has with space behind it, which makes it a long one", () => {
    const read = (text: string): unknown => {
      try {
        return JSON.stringify(parseJson(text, { depth: 3, values: 30, isFinite: true }));
      } catch (error) {
        return [(error as JsonError).path, (error as JsonError).isMalformed];
      }
    };
    const space = " ".repeat(3000);
    const broken = fc.tuple(json, fc.nat(20)).map(([whole, cut]) => whole.slice(0, -cut - 1));
    fc.assert(
      fc.property(fc.oneof(json, broken), (document) => {
        expect(read(document)).toEqual(read(document + space));
      }),
      { numRuns: 1000 },
    );
    for (const each of ["1e400", "0.10", "-0", "0.0000001", "[[[[]]]]", "123456789012345678"]) {
      expect(read(each)).toEqual(read(each + space));
    }
  });

  test("plainNumber converts a number kept as written, and leaves other values unchanged", () => {
    expect(plainNumber(parseJson("30.0", { depth: 1 }))).toBe(30);
    expect(plainNumber(parseJson("1e400", { depth: 1 }))).toBe(Infinity);
    expect(plainNumber(30)).toBe(30);
    expect(plainNumber("30.0")).toBe("30.0");
    const nested = { a: 1 };
    expect(plainNumber(nested)).toBe(nested);
  });
});

test("__proto__ and constructor are keys like any other", () => {
  const document = '{"__proto__":{"admin":true},"constructor":{"prototype":1}}';
  const value = parseJson(document, { depth: 8 });
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
  expect(() => parseJson(text, { depth: 8 })).toThrow(JsonError);
});

test.each([
  ["[1.0,]", 'a value is missing at position 5, before "]"'],
  ["[1.0", 'a "," or "]" is missing at position 4, before its end'],
  ['{"a":1 "b":2}', 'a "," or "}" is missing at position 7, before "\\"b\\":2}"'],
  ["{a:1}", 'a key is missing at position 1, before "a:1}"'],
  ['["a', 'a valid string is missing at position 1, before "\\"a"'],
  ["[01]", 'a valid number is missing at position 1, before "01]"'],
  ["1 2", 'the end is missing at position 2, before "2"'],
])("an error says what is missing where: %s", (text, message) => {
  expect(() => parseJson(text, { depth: 8 })).toThrow(message);
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
  expect(timed(() => parseJson(text, { depth: 8 })) / plain).toBeLessThan(5);
});

describe("nesting", () => {
  test("is refused above the limit", async () => {
    const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);
    expect(roundTrip(nested(512))).toHaveLength(1024);
    for (const deep of [nested(513), '{"a":'.repeat(1_000_000)]) {
      const error = new JsonError("it is nested more than 512 deep", "", false);
      expect(() => parseJson(deep, { depth: 512 })).toThrow(error.message);
      await expect(checkJson(deep, { depth: 512 })).rejects.toThrow(error.message);
    }
  });

  test("is the depth of the value", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const depth = depthOf(value);
        const text = JSON.stringify(value);
        expect(parseJson(text, { depth })).toEqual(JSON.parse(text));
        expect(() => parseJson(`[${text}]`, { depth })).toThrow(JsonError);
      }),
    );
  });
});

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

test("only a plain object is a JSON object", () => {
  expect(["{}", '{"a":1.0}'].map((text) => isJsonObject(parseJson(text, { depth: 8 })))).toEqual([
    true,
    true,
  ]);
  const others = ["[]", "null", "1", "1.0", '"{}"', "true"];
  for (const text of others) expect(isJsonObject(parseJson(text, { depth: 8 }))).toBe(false);
});

describe("the number of keys and values", () => {
  test.each([
    ["1", 1],
    ["[]", 1],
    ["[1,2]", 3],
    ['{"a":[-1.5e3,true,null],"b":"x[1,{}]\\"y"}', 8],
    [" [ false , { } ] ", 3],
  ])("of %s is %i", (text, values) => {
    expect(() => parseJson(text, { depth: 8, values })).not.toThrow();
    expect(() => parseJson(text, { depth: 8, values: values - 1 })).toThrow(
      `it has more than ${values - 1} keys and values`,
    );
  });

  test("has a limit of its own for a member that may have more", () => {
    const roomy = { key: "input", depth: 1, values: 6 };
    const parse = (text: string): unknown => parseJson(text, { depth: 8, values: 5, roomy });
    expect(() => parse('{"args":[1,2],"input":[1,2,3,4]}')).not.toThrow();
    expect(() => parse('{"args":[1,2,3],"input":[1]}')).toThrow(
      expect.objectContaining({ path: "args" }),
    );
    expect(() => parse('{"args":[1,2],"input":[1,2,3,4,5]}')).toThrow(
      expect.objectContaining({ path: "input" }),
    );
    expect(() => parse('{"a":{"input":[1,2,3,4]}}')).toThrow(
      expect.objectContaining({ path: "a" }),
    );
    expect(() => parse('{"input":[1],"input":[3]}')).not.toThrow();
  });

  test("of one object is at most 100,000 keys", () => {
    const keys = (count: number): string =>
      `{${Array.from({ length: count }, (_, n) => `"${n}":0`).join(",")}}`;
    expect(Object.keys(parseJson(keys(100_000), { depth: 8 }) as object)).toHaveLength(100_000);
    expect(() => parseJson(keys(100_001), { depth: 8 })).toThrow("more than 100000 keys");
  });
});

describe("any document", () => {
  const value = fc.jsonValue({ maxDepth: 6, stringUnit: "binary" });
  const spaced = (text: string): string =>
    ` ${text.replaceAll(/[,:](?=(?:[^"]*"[^"]*")*[^"]*$)/g, " $&\n\t")}\r`;
  const ordered = (one: unknown): unknown => {
    if (Array.isArray(one)) return one.map(ordered);
    if (typeof one !== "object" || one === null) return one;
    const entries = Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(entries.map(([key, inner]) => [key, ordered(inner)]));
  };

  test("is read and written as by JSON.parse and JSON.stringify, at once and in pieces", async () => {
    await fc.assert(
      fc.asyncProperty(value, async (one) => {
        const text = JSON.stringify(one);
        const parsed = JSON.parse(text) as unknown;
        for (const source of [text, spaced(text), JSON.stringify(one, null, 2)]) {
          expect(parseJson(source, { depth: 9 })).toEqual(parsed);
          expect(parsePlainJson(source, { depth: 9 })).toEqual(parsed);
          expect(await parseJsonInPieces(source, { depth: 9 })).toEqual(parsed);
          expect(await checkJson(source, { depth: 9 })).toBe(text[0]);
        }
        expect(writeJson(parsed)).toBe(text);
        expect(new TextDecoder().decode(await writeJsonInPieces(parsed))).toBe(text);
        const sorted = JSON.stringify(ordered(parsed));
        expect(canonicalJson(parsed)).toBe(sorted);
        expect(new TextDecoder().decode(await canonicalJsonInPieces(parsed))).toBe(sorted);
      }),
    );
  });

  test("is refused as by JSON.parse, whatever is wrong in it", () => {
    const mistakes = fc.tuple(
      value,
      fc.nat(),
      fc.string({ maxLength: 2, unit: fc.constantFrom(...Array.from('{}[]",:\\e1.-\n tu')) }),
    );
    fc.assert(
      fc.property(mistakes, ([one, at, inserted]) => {
        const text = JSON.stringify(one);
        const from = at % (text.length + 1);
        const wrong = text.slice(0, from) + inserted + text.slice(from + (at % 3));
        const outcome = (parse: () => unknown): unknown => {
          try {
            return [parse()];
          } catch {
            return "refused";
          }
        };
        expect(outcome(() => parsePlainJson(wrong, { depth: 512 }))).toEqual(
          outcome(() => JSON.parse(wrong) as unknown),
        );
      }),
      { numRuns: 2000 },
    );
  });

  test("may have strings that are read and written in parts", async () => {
    const text = JSON.stringify([
      "x".repeat(2_000_000),
      '\\"é😀\n'.repeat(200_000),
      `${"😀".repeat(131_072)}\ud83d`,
    ]);
    const parsed = await parseJsonInPieces(text, { depth: 1 });
    expect(parsed).toEqual(JSON.parse(text));
    expect(writeJson(parsed) === text).toBe(true);
  });

  test("has the same canonical text in each order of its keys, also of many", async () => {
    const keys = Array.from({ length: 20_000 }, (_, n) => [
      `${n % 3 ? "k" : ""}${(n * 7919) % 20_011}`,
      n,
    ]);
    const some = Object.fromEntries(keys) as object;
    const others = Object.fromEntries(keys.toReversed()) as object;
    expect(canonicalJson(some) === canonicalJson(others)).toBe(true);
    expect(canonicalJson(some) === JSON.stringify(ordered(some))).toBe(true);
  });

  test("takes pauses in which others run", async () => {
    const text = `{"a":[${"{},".repeat(200_000)}{}]}`;
    const countOthers = async (work: () => Promise<unknown>): Promise<number> => {
      let count = 0;
      const ended = new AbortController();
      const others = (async () => {
        while (!ended.signal.aborted) {
          await new Promise(setImmediate);
          count++;
        }
      })();
      await work();
      ended.abort();
      await others;
      return count;
    };
    const value = parseJson(text, { depth: 8 });
    for (const work of [
      () => parseJsonInPieces(text, { depth: 8 }),
      () => checkJson(text, { depth: 8 }),
      () => writeJsonInPieces(value),
      () => canonicalJsonInPieces(value),
    ]) {
      expect(await countOthers(work)).toBeGreaterThan(20);
    }
  });
});

test("a text that was checked before is written as it is", () => {
  expect(writeJson({ a: [new JsonText('{"b": 1.0}')] })).toBe('{"a":[{"b": 1.0}]}');
});

test("a text with too many values is refused before any more of it is read", async () => {
  const text = `["a\\n",${"{},".repeat(98)}"b\\n"]`;
  const parse = vi.spyOn(JSON, "parse");
  await expect(parseJsonInPieces(text, { depth: 8, values: 99 })).rejects.toThrow(JsonError);
  expect(parse.mock.calls).toEqual([['"a\\n"']]);
  parse.mockRestore();
});

test.each([
  ["0", 0],
  ["1024", 1024],
  ["7b", 7],
  ["1k", 1024],
  ["512m", 512 * 1024 ** 2],
  ["2G", 2 * 1024 ** 3],
])("%s is %d bytes", (text, bytes) => {
  expect(parseBytes(text)).toBe(bytes);
});

test.each(["", "m", "-1m", "1.5g", "1 m", "1kb", "0x10", "1t", "١m"])(
  "%j is not a size",
  (text) => {
    expect(() => parseBytes(text)).toThrow(`not a size: ${text}`);
  },
);

test("parts of any size are joined in order", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array()), (parts) => {
      expect([...concatBytes(parts)]).toEqual(parts.flatMap((part) => [...part]));
    }),
  );
});

test.each([
  ["work that pauses", () => letOthersRun],
  ["work that waits for its data", turnTaker],
])("a turn of the event loop has one piece of all %s", async (_, begin) => {
  using turns = countTurns();
  const pieces: number[] = [];
  const work = async (): Promise<void> => {
    const pause = begin();
    for (let n = 0; n < 20; n++) {
      await pause();
      pieces.push(turns.now());
    }
  };
  await begin()();
  await Promise.all(Array.from({ length: 10 }, work));
  // The first and the last to work are alone.
  const others = pieces.slice(10, -20);
  expect(new Set(others).size).toBe(others.length);
});

test("a turn of the event loop has at most two pieces of 64 KiB of all answers", async () => {
  using turns = countTurns();
  const pieces = await Promise.all(
    Array.from({ length: 50 }, async () => {
      await takeBytes(64 * 1024);
      return turns.now();
    }),
  );
  const counts = Object.groupBy(pieces, (turn) => turn);
  expect(Math.max(...Object.values(counts).map((of) => of!.length))).toBe(2);
});

test("lone work that waits for its data does not pause", async () => {
  using turns = countTurns();
  await letOthersRun();
  const start = turns.now();
  const takeTurn = turnTaker();
  for (let n = 0; n < 100; n++) await takeTurn();
  expect(turns.now()).toBe(start);
});
