import { type Frame, FrameError } from "../protocol/frames.ts";
import { Next, parseMessage } from "../protocol/messages.ts";
import type { Link } from "../protocol/link.ts";

/** What must have been looked over before a container may serve another job. */
const needed = ["processes", "files", "ipc", "sockets", "interpreter"] as const;

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
    const { problem, verified } = parseMessage(Next, payload);
    if (problem !== null) return problem;
    const missing = needed.filter((what) => !verified.includes(what));
    return missing.length === 0 ? null : `not looked over: ${missing.join(", ")}`;
  } catch (error) {
    if (!(error instanceof FrameError)) throw error;
    return error.message;
  } finally {
    clearTimeout(watchdog);
  }
}
