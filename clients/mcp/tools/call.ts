import type { CallToolResult } from "@modelcontextprotocol/server";
import type { z } from "zod";
import { parseJsonInPieces } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { transport } from "../../typescript/src/transport/transport.ts";
import { type Verbs, verbs } from "../../typescript/src/verbs.ts";
import type { Facts } from "./facts.ts";

/** Sends a request to the public HTTP interface: `fetch` with a path instead of an address. */
export type Api = (path: string, init?: RequestInit) => Promise<Response>;

/** The TypeScript client for a service in this process, without a network. */
export function clientOf(api: Api): Verbs {
  return verbs(
    transport({
      url: "",
      retries: 0,
      fetch: (path, init) => api(path as string, init),
      parse: parseAnswer,
    }),
  );
}

/** Reads an answer of the service. Numbers of the code's output stay as they were written. */
export const parseAnswer = (text: string): Promise<unknown> =>
  parseJsonInPieces(text, { depth: 2 * limits.jsonDepthMax });

/** One call of a tool. */
export interface Call {
  airlock: Verbs;
  /** Aborts when the client cancels the call, or its connection ends. */
  signal: AbortSignal;
  /** Tells the client how far the call is; undefined if it did not ask. */
  report: ((progress: number, message: string) => Promise<void>) | undefined;
  /** Metadata of the jobs that the call makes, by which a later request finds them. */
  metadata: Record<string, string>;
  /** Whether an aborted signal means that the client wants the job to end. */
  abortCancels: () => boolean;
  /** Has the platform wait for work that no answer waits for. */
  keep: (work: Promise<unknown>) => void;
}

export interface Tool {
  name: string;
  title: string;
  describe: (facts: Facts) => string;
  input: z.ZodObject;
  output: z.ZodObject;
  isReadOnly: boolean;
  run: (call: Call, input: never) => Promise<CallToolResult>;
}

/** Checks that the types of a tool's parts fit each other. */
export function tool<Input extends z.ZodObject>(
  definition: Omit<Tool, "input" | "run"> & {
    input: Input;
    run: (call: Call, input: z.infer<Input>) => Promise<CallToolResult>;
  },
): Tool {
  return definition;
}
