import type { Bytecode } from "../python/program.ts";

export interface Bytecodes {
  of(image: string): Bytecode | null;
  /**
   * Stores the bytecode of the image's supervisor; null drops it, so that the next container
   * compiles it again.
   */
  keep(image: string, bytecode: Bytecode | null): void;
}

/**
 * The supervisor's bytecode by image, compiled by the image's own Python in its first container.
 * Bytecode from a hostile image runs only in containers of that image.
 */
export function bytecodes(limit = 64): Bytecodes {
  const byImage = new Map<string, Bytecode>();
  return {
    of: (image) => byImage.get(image) ?? null,
    keep(image, bytecode) {
      byImage.delete(image);
      if (bytecode === null) return;
      const { program, later } = bytecode;
      byImage.set(image, { program: Uint8Array.from(program), later: Uint8Array.from(later) });
      const [oldest] = byImage.keys();
      if (byImage.size > limit && oldest !== undefined) byImage.delete(oldest);
    },
  };
}
