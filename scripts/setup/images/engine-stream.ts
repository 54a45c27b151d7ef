import { createInterface } from "node:readline";

/** One line of the progress that an engine streams while it pulls or imports an image. */
export type EngineEvent = {
  status?: string;
  id?: string;
  error?: string;
  progressDetail?: { current?: number; total?: number };
};

/** Reads an engine's progress to its end. Throws what the engine reports as an error. */
export async function readEngineStream(
  stream: NodeJS.ReadableStream,
  onEvent: (event: EngineEvent) => void = () => {},
): Promise<void> {
  for await (const line of createInterface({ input: stream })) {
    if (!line.trim()) continue;
    const event = JSON.parse(line) as EngineEvent;
    if (event.error) throw new Error(event.error);
    onEvent(event);
  }
}
