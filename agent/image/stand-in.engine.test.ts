import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { tarEnd, tarHeader } from "./tar.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { rawEngine, removeImages } from "../sandbox/testing/raw-engine.ts";

const name = "io.airlock.test";

test("an image derived from another is not taken for it, although it has its labels", async () => {
  const { engine } = await testEngine();
  const find = (value: string) => engine.labelledImageId(name, value, AbortSignal.timeout(30_000));
  const [own, later] = [randomUUID(), randomUUID()];

  const tar = () => Readable.from([tarHeader("file", 0), tarEnd]);
  const changes = [`LABEL ${name}=${own}`];
  const [repo, tag] = [`airlock-test-${own}`, "1"];
  await text(await rawEngine.importImage(tar(), { changes, repo, tag }));
  const { Id: base } = await rawEngine.getImage(`${repo}:${tag}`).inspect();
  const container = await rawEngine.createContainer({ Image: base, Cmd: ["none"] });
  const commit = async (changes: string[]) =>
    ((await container.commit({ changes })) as { Id: string }).Id;
  const sameFiles = await commit(["ENV MORE=1"]);
  await container.putArchive(tar(), { path: "/" });
  const moreFiles = await commit([`LABEL ${name}=${later}`]);
  await container.remove();
  try {
    expect(await find(own)).toBe(base);
    expect(await find(later)).toBeNull();
  } finally {
    await removeImages(base, sameFiles, moreFiles);
  }
});
