import type Docker from "dockerode";
import { say } from "../../command/say.ts";
import { readEngineStream } from "./engine-stream.ts";

const STALL_MS = 20_000;
const PROGRESS_EVERY_MS = 5000;

/** Pulls an image; gives up if there is no progress for `stallMs`. Throws the engine's error. */
export async function pullImage(docker: Docker, image: string, stallMs = STALL_MS): Promise<void> {
  say(`pulling ${image} …`);
  const stalled = new AbortController();
  const giveUp = (): void =>
    stalled.abort(new Error(`the registry sent nothing for ${stallMs / 1000} s`));
  const timer = setTimeout(giveUp, stallMs);
  const layers = new Map<string, number>();
  const report = setInterval(
    () => say(`pulling ${image} … ${megabytes(layers)} MB`),
    PROGRESS_EVERY_MS,
  );
  try {
    const stream = await docker.pull(image, { abortSignal: stalled.signal });
    await readEngineStream(stream, (event) => {
      timer.refresh();
      if (event.status === "Downloading")
        layers.set(event.id ?? "", event.progressDetail?.current ?? 0);
    });
  } catch (error) {
    throw stalled.signal.aborted ? (stalled.signal.reason as Error) : error;
  } finally {
    clearTimeout(timer);
    clearInterval(report);
  }
}

function megabytes(layers: Map<string, number>): number {
  const bytes = [...layers.values()].reduce((sum, size) => sum + size, 0);
  return Math.round(bytes / 1e6);
}
