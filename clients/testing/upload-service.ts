import { startNode } from "../../api/testing/start-node.ts";
import { type Cut, startCuttingProxy } from "../../scripts/testing/cutting-proxy.ts";

/** Larger than any buffer between the client and the disk. */
export const uploadBytes = 8 * 1024 * 1024;

/** Before the head, in it, in the body, before its last byte, before the answer, in the answer. */
export const uploadCuts: readonly Cut[] = [
  ...[1, 60, 1_000, 70_000, uploadBytes / 2, uploadBytes - 1, uploadBytes + 100].map((request) => ({
    request,
  })),
  ...[0, 1, 40, 300, 600].map((answer) => ({ answer })),
];

/** A real API behind a proxy that breaks connections. */
export async function startUploadService() {
  const api = await startNode({
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_MAX_FILE_BYTES: String(uploadBytes),
  });
  const proxy = await startCuttingProxy(api.url);
  return {
    proxy,
    /** Names, sizes and hashes of the files that it has, in the order of their names. */
    async files(): Promise<string[]> {
      const answer = await fetch(`${api.url}/files?limit=1000`);
      type File = { name: string; size_bytes: number; sha256: string };
      const { items } = (await answer.json()) as { items: File[] };
      return items.map(({ name, size_bytes, sha256 }) => `${name} ${size_bytes} ${sha256}`).sort();
    },
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await api.close();
    },
  };
}
