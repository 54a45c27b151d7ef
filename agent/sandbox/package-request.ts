import type { Duplex } from "node:stream";

/**
 * Packages that a container gets before its job; inside/packages.py puts them in place. An order
 * serves a second time where its container turns out to have died.
 */
export interface PackageRequest {
  /** The lines of /input/_requirements.txt; checked before, as they come from anyone. */
  readonly requirements: readonly string[];
  readonly from: PipSource | KeptPackages;
}

export interface PipSource {
  /** Settings of pip, secrets among them: the code never sees them. */
  readonly pipEnv: Readonly<Record<string, string>>;
  /** Files under /packages that pip needs; /packages/.pip is gone when it has ended. */
  readonly files: Readonly<Record<string, Uint8Array>>;
  /** Gets what pip says to its proxy, one connection after the other. */
  readonly serve: (connection: Duplex) => void;
  /** Makes what takes all that was installed, piece by piece, where it is to be kept. */
  readonly keep: (() => Promise<KeepPiece>) | null;
}

export type KeepPiece = (piece: Uint8Array) => Promise<void>;

export interface KeptPackages {
  /** From its beginning, what was kept of an earlier installation. */
  readonly kept: () => AsyncIterable<Uint8Array>;
}

/** The packages could not be installed; the message is pip's own. */
export class InstallError extends Error {
  override name = "InstallError";
}
