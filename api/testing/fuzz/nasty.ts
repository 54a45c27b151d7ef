import * as fc from "fast-check";

/** Strings that have broken services before. */
export const nastyText = fc.oneof(
  fc.constantFrom(
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\u{1f4a9}",
    "\u202e\u200b\ufeff",
    "\r\nX-Injected: 1",
    "__proto__",
    "constructor",
    "../../etc/passwd",
    "%2e%2e%2f",
    "%zz",
    "'; drop table executions; --",
    "${7*7}{{7*7}}",
    "NaN",
    "true",
    "1e400",
    "-0",
    "x".repeat(5000),
  ),
  fc.string({ maxLength: 40, unit: "binary" }),
);

/** Values of the wrong kind, size or shape. */
export const nasty: fc.Arbitrary<unknown> = fc.oneof(
  nastyText,
  fc.constantFrom<unknown>(
    null,
    true,
    0,
    -1,
    1.5,
    2 ** 53,
    -(2 ** 63),
    Number.MAX_VALUE,
    5e-324,
    [],
    {},
    [[]],
    { __proto__: null, constructor: 1 },
    JSON.parse('{"__proto__": {"polluted": true}}'),
  ),
  fc.integer({ min: 1, max: 2000 }).map(nested),
);

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
  return value;
}

/** Bodies made of a JSON text: mostly the text, sometimes damaged. */
export function damaged(json: string): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  return fc.oneof(
    { weight: 12, arbitrary: fc.constant(bytes(json)) },
    { weight: 1, arbitrary: fc.nat({ max: json.length }).map((at) => bytes(json.slice(0, at))) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        bytes(`\ufeff${json}`),
        bytes(`${json}${json}`),
        bytes(json.replaceAll(/\d+/g, "1e400")),
        bytes(json.replace("{", '{"__proto__":{"a":1},')),
        bytes("["),
        bytes("[".repeat(100_000)),
        bytes("null"),
        new Uint8Array([0xff, 0xfe, 0x7b, 0x00]),
        new Uint8Array([0x7b, 0x22, 0xc3, 0x28, 0x22, 0x7d]),
      ),
    },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }).map((a) => new Uint8Array(a)) },
  );
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(text));
}
