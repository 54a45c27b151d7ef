/** A program of the image that runs in place of Python. */
export interface Program {
  /** Name of the file in /code that has the code. */
  readonly file: string;
  /** Arguments of the compiler, which runs first; empty if there is none. */
  readonly compile: readonly string[];
  readonly compileTimeoutMs: number;
  readonly run: readonly string[];
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
  /** What the code reads from its standard input. Without it, the code reads end of file. */
  readonly stdin?: string | undefined;
  /** The code's arguments. */
  readonly args?: readonly string[] | undefined;
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

/** What a cell displayed. */
export interface DisplayItem {
  /** 1 for the first one. */
  readonly number: number;
  /** It is the value of the last expression. */
  readonly main: boolean;
  /** By MIME type; base64 where that is not text. */
  readonly data: Readonly<Record<string, string>>;
  /** Bytes of each stream that were kept before it. */
  readonly stdoutAt: number;
  readonly stderrAt: number;
}

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
}
