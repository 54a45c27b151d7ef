import type { Duplex } from "node:stream";

/**
 * Packages to install in a container before its job; python/packages.py installs them. If the
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
  /** Bytes that the packages may take on disk; null where the size of /packages is the limit. */
  readonly maxBytes: number | null;
}

/** Packages that a job asks for, before it is known where they will be. */
export interface WantedPackages {
  /** As in PackageRequest. */
  readonly requirements: readonly string[];
  /** Whose job wants them. */
  readonly tenant: string;
  /** Equal for jobs to which pip would give the same. */
  readonly key: string;
  readonly from: PipSource;
  /**
   * Waits for an installation for as long as the job may; a failure becomes the job's refusal.
   *
   * @throws JobRefusal; EngineError; the reason of an aborted signal.
   */
  readonly wait: <T>(install: (signal: AbortSignal) => Promise<T>) => Promise<T>;
  /** Is told the milliseconds that an installation took. */
  readonly took: (installMs: number) => void;
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
