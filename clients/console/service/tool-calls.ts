import type { ToolCall } from "../../typescript/src/generated.ts";
import { api } from "./client.ts";
import { isEnded } from "./records.ts";

/** A call of a function of the caller, as text. */
export interface ShownToolCall {
  number: number;
  name: string;
  given: string;
  answer: { isError: boolean; text: string } | undefined;
}

export interface ShownToolCalls {
  calls: ShownToolCall[];
  isEnded: boolean;
}

/** A page keeps this much of arguments and of an answer: each may have 1 MiB, in a thousand calls. */
const mostCharacters = 10_000;

const cut = (text: string): string =>
  text.length > mostCharacters ? `${text.slice(0, mostCharacters)}\n[…]` : text;
const asText = (value: unknown): string => cut(JSON.stringify(value, null, 2));

export const toShown = (call: ToolCall): ShownToolCall => ({
  number: call.number,
  name: call.name,
  given: asText(call.arguments),
  answer: call.answer && toAnswer(call.answer),
});

const toAnswer = ({ result, error }: NonNullable<ToolCall["answer"]>) => ({
  isError: error !== undefined,
  text: error === undefined ? asText(result) : cut(error),
});

/** Reads all calls of a job: first each of them, then those that had no answer and what came after them. */
export function toolCallReader(id: string): (signal: AbortSignal) => Promise<ShownToolCalls> {
  const settled: ShownToolCall[] = [];
  return async (signal) => {
    const found: ShownToolCall[] = [];
    for (;;) {
      const after = (found.at(-1) ?? settled.at(-1))?.number ?? 0;
      const { calls, status } = await api.listToolCalls({ id, after, all: true }, { signal });
      found.push(...calls.map(toShown));
      if (calls.length > 0) continue;
      const waits = found.findIndex(({ answer }) => answer === undefined);
      settled.push(...found.splice(0, waits === -1 ? found.length : waits));
      return { calls: [...settled, ...found], isEnded: isEnded({ status }) };
    }
  };
}
