import type { Bytecode } from "./supervisor.ts";

export interface Bytecodes {
  of(image: string): Bytecode | null;
  /** Keeps what a supervisor of the image made; null drops it, so that the next one makes it anew. */
  keep(image: string, bytecode: Bytecode | null): void;
}

/**
 * The supervisor's bytecode by image, made by the image's own Python in the first container of it.
 * What a hostile image makes runs in containers of that image alone.
 */
export function bytecodes(limit = 64): Bytecodes {
  const byImage = new Map<string, Bytecode>();
  return {
    of: (image) => byImage.get(image) ?? null,
    keep(image, bytecode) {
      byImage.delete(image);
      if (bytecode === null) return;
      byImage.set(image, Uint8Array.from(bytecode));
      const [oldest] = byImage.keys();
      if (byImage.size > limit && oldest !== undefined) byImage.delete(oldest);
    },
  };
}
