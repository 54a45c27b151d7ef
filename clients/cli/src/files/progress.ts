import { plain, type Terminal } from "../terminal.ts";
import { bytes } from "../words.ts";

/** Shorter transfers show nothing. */
const shownBytes = 8_000_000;
const everyMs = 200;

/** How far a transfer is. */
export interface Progress {
  add(count: number): void;
  /** Ends the line. */
  end(): void;
}

/** Shows how far a long transfer is, to a person who watches. */
export function showProgress({ watched }: Terminal, name: string, size: number): Progress {
  const shows = watched && size > shownBytes;
  let [done, shownAt] = [0, 0];
  const show = (): void => {
    const count = `  ${bytes(done)} of ${bytes(size)}`;
    // A longer line would wrap, and the next one could not replace it.
    const room = Math.max(8, (process.stderr.columns || 80) - count.length - 1);
    process.stderr.write(`\r${plain(name).slice(0, room)}${count}\x1b[K`);
  };
  return {
    add(count) {
      done += count;
      if (!shows || Date.now() - shownAt < everyMs) return;
      shownAt = Date.now();
      show();
    },
    end() {
      if (shownAt === 0) return;
      show();
      process.stderr.write("\n");
    },
  };
}
