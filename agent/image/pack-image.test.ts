import { join } from "node:path";
import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { packImage } from "./pack-image.ts";
import { tarEnd, tarHeader, tarPadding } from "./tar.ts";

function file(name: string, content: object): Buffer[] {
  const bytes = Buffer.from(JSON.stringify(content));
  return [tarHeader(name, bytes.length), bytes, tarPadding(bytes.length)];
}

test("an image in containerd's store is not packed, and the message says what to do", async () => {
  const folder = tempFolder();
  const tar = Readable.from([
    ...file("blobs/sha256/config", { rootfs: { diff_ids: [] } }),
    ...file("manifest.json", [{ Config: "blobs/sha256/config", Layers: [] }]),
    tarEnd,
  ]);
  // Such a store calls an image by the digest of its manifest.
  const image = `sha256:${"0".repeat(64)}`;
  await expect(packImage(tar, image, join(folder, "packed"), 1_000_000)).rejects.toThrow(
    /containerd's image store.*set image_registry/,
  );
});
