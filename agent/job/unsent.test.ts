import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { OutputPart, StreamName } from "../../shared/wire/output.ts";
import { createUnsent, type Unsent } from "./unsent.ts";

function takeAll(unsent: Unsent): OutputPart[][] {
  const posts: OutputPart[][] = [];
  for (let post = unsent.take(); post; post = unsent.take()) posts.push(post);
  return posts;
}

const bytesOf = ({ data_base64 }: OutputPart): Buffer => Buffer.from(data_base64, "base64");

/** Each byte with its stream, in order. */
const spelled = (parts: OutputPart[]): string[] =>
  parts.flatMap((part) => [...bytesOf(part)].map((byte) => `${part.stream} ${byte}`));

test("what was added comes out in its order and once, whenever it is taken", () => {
  const step = fc.oneof(
    fc.record({
      stream: fc.constantFrom<StreamName>("stdout", "stderr"),
      bytes: fc.uint8Array({ maxLength: 5 }),
    }),
    fc.constant("take" as const),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const unsent = createUnsent();
      const added: string[] = [];
      const parts: OutputPart[] = [];
      for (const one of steps) {
        if (one === "take") parts.push(...(unsent.take() ?? []));
        else {
          unsent.add(one.stream, one.bytes);
          added.push(...[...one.bytes].map((byte) => `${one.stream} ${byte}`));
        }
      }
      parts.push(...takeAll(unsent).flat());
      expect(spelled(parts)).toEqual(added);
      expect(unsent.isEmpty()).toBe(true);
      for (const stream of ["stdout", "stderr"] as const) {
        let offset = 0;
        for (const part of parts.filter((one) => one.stream === stream)) {
          expect(part.offset).toBe(offset);
          offset += bytesOf(part).length;
        }
      }
    }),
  );
});

test("a post has at most 256 KiB and 1,000 parts", () => {
  const unsent = createUnsent();
  unsent.add("stdout", new Uint8Array(600 * 1024));
  for (let n = 0; n < 2500; n++) unsent.add(n % 2 ? "stdout" : "stderr", Uint8Array.of(n));
  for (const post of takeAll(unsent)) {
    expect(post.length).toBeLessThanOrEqual(1000);
    const size = post.reduce((sum, part) => sum + bytesOf(part).length, 0);
    expect(size).toBeLessThanOrEqual(256 * 1024);
  }
});

test("code that changes the stream at every byte costs the agent little memory", () => {
  const unsent = createUnsent();
  const byte = Uint8Array.of(1);
  const before = process.memoryUsage().rss;
  for (let n = 0; n < 2_000_000; n++) unsent.add(n % 2 ? "stdout" : "stderr", byte.slice());
  expect(process.memoryUsage().rss - before).toBeLessThan(300 * 1024 * 1024);
  expect(unsent.take()).toHaveLength(1000);
});
