import type { Tool } from "../generated.ts";

/** A function of this program that the code of a job can call. */
export interface OwnTool extends Tool {
  /** Gets the arguments by name; the code gets what it returns or resolves to, or the error that it throws. */
  // oxlint-disable-next-line typescript/no-explicit-any -- the schema in `parameters` says what they are
  readonly run: (given: any) => unknown;
}

/** What a request says of them. */
export function describe(tools: readonly OwnTool[]): Tool[] {
  return tools.map(({ run: _run, ...tool }) => tool);
}
