import { type Frame, FrameError } from "../protocol/frames.ts";
import { Next, parseMessage } from "../protocol/messages.ts";
import type { Link } from "../protocol/link.ts";

/**
 * Waits until the supervisor has wiped its container after a job and is ready for the next one.
 *
 * @returns why it failed; null if it is ready.
 */
export async function waitForNext(
  link: Pick<Link, "destroy">,
  read: () => Promise<Frame>,
  withinMs: number,
): Promise<string | null> {
  const watchdog = setTimeout(() => link.destroy(), withinMs);
  try {
    const { type, payload } = await read();
    if (type !== "N") throw new FrameError(`a frame ${type} out of turn`);
    return parseMessage(Next, payload).problem;
  } catch (error) {
    if (!(error instanceof FrameError)) throw error;
    return error.message;
  } finally {
    clearTimeout(watchdog);
  }
}
