import { type Ask, pathOf } from "../transport/ask.ts";
import { AirlockError, ConflictError, TooLargeError } from "../transport/errors.ts";
import type { ToolCall } from "../generated.ts";
import type { CallOptions } from "../transport/transport.ts";
import type { OwnTool } from "./describe.ts";

/** Answers the calls of a job, all that wait at once. */
export interface Answering {
  readonly take: (call: ToolCall) => void;
  /** Aborts when an answer could not be sent: the code would wait in vain. */
  readonly failed: AbortSignal;
}

export function answering(
  ask: Ask,
  jobId: string,
  tools: readonly OwnTool[],
  options: CallOptions,
): Answering {
  const failure = new AbortController();

  async function send(number: number, answer: object): Promise<void> {
    const path = `${pathOf("jobs", jobId)}/tool-calls/${number}`;
    await ask(path, { method: "POST", body: answer }, options);
  }

  async function answer({ number, name, arguments: given }: ToolCall): Promise<void> {
    const tool = tools.find((one) => one.name === name);
    if (!tool) return;
    const outcome = await outcomeOf(tool, given);
    try {
      await send(number, outcome);
    } catch (error) {
      // It has this answer already, or the job has ended.
      if (error instanceof ConflictError) return;
      const problem = whyUnfit(error);
      if (problem === undefined) throw error;
      await send(number, { error: problem });
    }
  }

  return {
    take: (call) => void answer(call).catch((error: unknown) => failure.abort(error)),
    failed: failure.signal,
  };
}

async function outcomeOf({ run }: OwnTool, given: object): Promise<object> {
  try {
    const result = (await run(given)) ?? null;
    const isJson = JSON.stringify(result) !== undefined;
    return isJson ? { result } : { error: `The result is no JSON: it is a ${typeof result}.` };
  } catch (error) {
    // The service takes no half of a pair of surrogates.
    return { error: new TextDecoder().decode(new TextEncoder().encode(String(error))) };
  }
}

/** Why a result cannot be an answer; undefined for other errors. */
function whyUnfit(error: unknown): string | undefined {
  if (error instanceof TooLargeError) return "The result is larger than an answer may be.";
  const isOfClient = error instanceof AirlockError && error.constructor === AirlockError;
  return isOfClient ? `The result is no JSON: ${error.message}` : undefined;
}
