import type { Duplex } from "node:stream";

/**
 * Packages to install in a container before its job; inside/packages.py installs them. If the
 * container turns out to be dead, the request is used again for another one.
 */
export interface PackageRequest {
  /** The lines of /input/_requirements.txt; already checked, because they are user input. */
  readonly requirements: readonly string[];
  readonly from: PipSource | KeptPackages;
}

export interface PipSource {
  /** Settings of pip, including secrets, which the code never sees. */
  readonly pipEnv: Readonly<Record<string, string>>;
  /** Files under /packages that pip needs; /packages/.pip is removed when pip has ended. */
  readonly files: Readonly<Record<string, Uint8Array>>;
  /** Serves each connection that pip opens to its proxy. */
  readonly serve: (connection: Duplex) => void;
  /**
   * Opens the writer for the installed files, which receives them piece by piece; null if they are
   * not cached.
   */
  readonly keep: (() => Promise<KeepPiece>) | null;
}

export type KeepPiece = (piece: Uint8Array) => Promise<void>;

export interface KeptPackages {
  /** Reads the cached files of an earlier installation from the beginning. */
  readonly kept: () => AsyncIterable<Uint8Array>;
}

/** The packages could not be installed; the message is pip's own. */
export class InstallError extends Error {
  override name = "InstallError";
}
