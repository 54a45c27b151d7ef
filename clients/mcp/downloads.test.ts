import { expect, test } from "vitest";
import { boundDownloads, createSequence } from "./downloads.ts";

const path = "/jobs/1/artifacts/a";
const file = (bytes: number) => new Uint8Array(bytes);
const sized = (bytes: number) => {
  return new Response(file(bytes), { headers: { "Content-Length": String(bytes) } });
};

test("of many reads at once, so many as there are turns are open, and all are answered", async () => {
  let open = 0;
  let most = 0;
  const inSequence = createSequence(3);
  const read = async () => {
    most = Math.max(most, ++open);
    for (let n = 0; n < 5; n++) await Promise.resolve();
    open--;
    return sized(1);
  };
  const reads = Array.from({ length: 20 }, () => boundDownloads(read, 1, inSequence)(path));
  expect((await Promise.all(reads)).every(({ ok }) => ok)).toBe(true);
  expect([most, open]).toEqual([3, 0]);
});

test("a read that fails gives its turn to the next", async () => {
  const inSequence = createSequence(1);
  const broken = boundDownloads(() => Promise.reject(new Error("no answer")), 1, inSequence);
  const [first, second] = [broken(path), boundDownloads(async () => sized(1), 1, inSequence)(path)];
  await expect(first).rejects.toThrow("no answer");
  expect((await second).status).toBe(200);
});

test("files of one request have a number of bytes together; other answers do not count", async () => {
  const api = boundDownloads(
    async () => sized(3),
    5,
    (read) => read(),
  );
  for (const other of ["/jobs/1/artifacts", "/executions/1", "/jobs/1/logs"]) await api(other);
  expect((await (await api(path)).arrayBuffer()).byteLength).toBe(3);
  await expect(api(path)).rejects.toThrow("5 bytes");
});
