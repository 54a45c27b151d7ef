import type { Duplex } from "node:stream";
import type { JsonObject } from "../../shared/json.ts";

/** A program of the image that runs in place of Python. */
export interface Program {
  /** Name of the file in /code that has the code. */
  readonly file: string;
  /** Arguments of the compiler, which runs first; empty if there is none. */
  readonly compile: readonly string[];
  readonly compileTimeoutMs: number;
  readonly run: readonly string[];
}

export interface Tools {
  readonly functions: readonly { readonly name: string }[];
  readonly timeoutMs: number;
}

/** What a call of a session has besides its code. */
export interface SandboxCall {
  /** Its place among the calls of its session, from 1. */
  readonly number: number;
  /** Name of the interpreter that it is for. */
  readonly context: string;
  /** The contexts that are left beside "default": the interpreters of others end. */
  readonly contexts: readonly string[];
  /** Whether the interpreter is replaced before the code. Without code, that is all. */
  readonly restart: boolean;
  /** Variables in its environment for this call only. */
  readonly env: Readonly<Record<string, string>>;
  /** Paths of files that come back as artifacts `_fetched/…`. */
  readonly fetch: readonly string[];
  /** Whether files of /output that have changed are left to the next call. */
  readonly onlyFetches?: boolean | undefined;
  /** Files that it brings. */
  readonly files: readonly CallFile[];
}

/** A file of a call: read-only in /input, or in /output, where the code may change it. */
export interface CallFile extends InputFile {
  readonly to: "input" | "work";
}

export interface SandboxJob {
  /** Source, UTF-8 where it is a string. */
  readonly code: string | Uint8Array;
  /** Absent: the code is Python. */
  readonly program?: Program | undefined;
  /** Text of /input/data.json. */
  readonly inputJson: string;
  /** Whether the code runs as a cell: what it displays, and the value of its last expression, become items. */
  readonly results?: boolean | undefined;
  /** The caller's functions, as JSON, and how long their calls may wait for answers, all together. */
  readonly tools?: Tools | undefined;
  /** What the code reads from its standard input. Without it, the code reads end of file. */
  readonly stdin?: string | undefined;
  /** The code's arguments. */
  readonly args?: readonly string[] | undefined;
  /** Set if it is a call of a session, see Sandbox.beginSession. */
  readonly call?: SandboxCall | undefined;
  /** Time the code may run, counted inside the container from its first instruction. */
  readonly timeoutMs: number;
  /** Sockets that the code may have open; without it, any number. */
  readonly maxSockets?: number | undefined;
  readonly caps: {
    /** Bytes kept of stdout, and as many of stderr. */
    readonly streamBytes: number;
    /** Bytes kept of all artifacts together. */
    readonly artifactBytes: number;
  };
}

/** A file that the code finds at /input/<name>, read-only. */
export interface InputFile {
  /** A relative path, checked. */
  readonly name: string;
  readonly sizeBytes: number;
  /** Lower-case hex. */
  readonly sha256: string;
  /** The agent's file with the bytes. */
  readonly path: string;
}

/** Where an item stands in a run. */
interface Place {
  /** 1 for the first one. */
  readonly number: number;
  /** Bytes of each stream that were kept before it. */
  readonly stdoutAt: number;
  readonly stderrAt: number;
}

/** What a cell displayed. */
export interface DisplayItem extends Place {
  /** It is the value of the last expression. */
  readonly main: boolean;
  /** By MIME type; base64 where that is not text. */
  readonly data: Readonly<Record<string, string>>;
}

/** A call of one of the caller's functions. */
export interface CallItem extends Place {
  readonly name: string;
  readonly arguments: JsonObject;
}

/** What a call returns, as JSON, or the error that it raises. */
export type CallAnswer = { readonly resultJson: string } | { readonly error: string };

export type StreamName = "stdout" | "stderr";

export interface RunOptions {
  /** Aborting it cancels the code: SIGTERM, a short grace, SIGKILL; then `run` still reports. */
  readonly signal: AbortSignal;
  /**
   * The agent's own folder, created with the first artifact. File names are numbers, never the
   * artifacts' names.
   */
  readonly spoolDir: string;
  readonly onStarted?: () => void;
  /** Receives live output up to half of the cap; a piece may end within a character. */
  readonly onOutput?: (stream: StreamName, bytes: Uint8Array) => void;
  readonly onItem?: (item: DisplayItem) => void;
  /** `answer` may be called once, at any time. */
  readonly onCall?: (call: CallItem, answer: (given: CallAnswer) => void) => void;
}

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

interface KeptPackages {
  /** Reads the cached files of an earlier installation from the beginning. */
  readonly kept: () => AsyncIterable<Uint8Array>;
}

/** The packages could not be installed; the message is pip's own. */
export class InstallError extends Error {
  override name = "InstallError";
}
