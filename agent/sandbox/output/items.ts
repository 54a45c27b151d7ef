import { limits } from "../../../shared/wire/limits.ts";
import { FrameError } from "../protocol/frames.ts";
import { Item } from "../protocol/messages.ts";
import type { DisplayItem, StreamName } from "../job.ts";

/** The items of one run, from the pieces in which they come. */
export interface Items {
  readonly all: readonly DisplayItem[];
  /** Whether an item was none: the code made it, not cells.py. */
  readonly hasInvalid: boolean;
  /** Returns the item that a piece completes. @throws FrameError on more than PID 1 relays. */
  take(frame: Buffer, at: Readonly<Record<StreamName, number>>): DisplayItem | undefined;
}

export function createItems(): Items {
  const all: DisplayItem[] = [];
  let pieces: Buffer[] = [];
  let bytes = 0;
  let begun = 0;
  let at: Record<StreamName, number> = { stdout: 0, stderr: 0 };
  let hasInvalid = false;

  function complete(): DisplayItem | undefined {
    const told = parse(Buffer.concat(pieces).toString("utf8"));
    pieces = [];
    bytes = 0;
    if (told === undefined) {
      hasInvalid = true;
      return undefined;
    }
    const item = { number: all.length + 1, ...told, stdoutAt: at.stdout, stderrAt: at.stderr };
    all.push(item);
    return item;
  }

  return {
    all,
    get hasInvalid() {
      return hasInvalid;
    },
    take(frame, now) {
      if (pieces.length === 0) {
        at = { ...now };
        begun++;
      }
      // Copied: it is a view of the larger piece that the stream brought.
      pieces.push(Buffer.from(frame.subarray(1)));
      bytes += frame.length - 1;
      if (frame.length < 2 || bytes > limits.resultItemMaxBytes || begun > limits.resultItemsMax)
        throw new FrameError("more items than PID 1 relays");
      return frame[0] === 0 ? complete() : undefined;
    },
  };
}

function parse(text: string): Pick<DisplayItem, "main" | "data"> | undefined {
  try {
    return Item.parse(
      JSON.parse(text, (_, value: unknown) =>
        typeof value === "string" ? value.toWellFormed() : value,
      ),
    );
  } catch {
    return undefined;
  }
}
