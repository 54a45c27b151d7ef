import type { Airlock, ToolCall } from "../../../typescript/src/index.ts";
import { plain } from "../terminal.ts";

/** Lines about the tool calls of a running job that wait for an answer. */
export async function* waitingCalls({ api }: Airlock, id: string): AsyncGenerator<string, void> {
  for (let after = 0; ;) {
    const { calls } = await api.listToolCalls({ id, after });
    const last = calls.at(-1);
    if (!last) return;
    yield* calls.map(describeCall);
    after = last.number;
  }
}

const mostCharacters = 160;

/** "call 2 waits for an answer: get_price({"item":"tea"})". */
export function describeCall({ number, name, arguments: given }: ToolCall): string {
  const text = JSON.stringify(given);
  const shown = text.length > mostCharacters ? `${text.slice(0, mostCharacters - 1)}…` : text;
  return plain(`call ${number} waits for an answer: ${name}(${shown})`);
}
