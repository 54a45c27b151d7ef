import { type Frame, FrameError } from "../protocol/frames.ts";
import { Next, parseMessage } from "../protocol/messages.ts";
import type { Link } from "../protocol/link.ts";

/**
 * Waits until the supervisor, as it does behind each job, has wiped its container and is ready for one more.
 *
 * @returns why it could not; null once it waits for the job.
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
