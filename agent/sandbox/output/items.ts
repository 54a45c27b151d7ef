import { parseJson, parsePlainJson } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { FrameError } from "../protocol/frames.ts";
import { Call, Item } from "../protocol/messages.ts";
import type { CallItem, DisplayItem, StreamName } from "../job.ts";

/** What the code shows and calls in one run, from the pieces in which it comes. All of it is numbered together. */
export interface Items {
  readonly shown: readonly DisplayItem[];
  /** Whether an item was none: the code made it, not cells.py. */
  readonly hasInvalid: boolean;
  /** Returns the item that a piece completes. @throws FrameError on more than PID 1 relays. */
  takeItem(frame: Buffer, at: Lengths): DisplayItem | undefined;
  /**
   * The same for a tool call, with the id that its answer needs (0 if it has none). Without a call if its arguments are
   * nested too deep, or the code made it, not tools.py.
   */
  takeCall(frame: Buffer, at: Lengths): { id: number; call?: CallItem } | undefined;
}

type Lengths = Readonly<Record<StreamName, number>>;

/** The item of an agent's post is nested in it. */
const callDepthMax = limits.jsonDepthMax - 8;

export function createItems(names: readonly string[] = []): Items {
  const shown: DisplayItem[] = [];
  const displays = assemble(limits.resultItemMaxBytes, limits.resultItemsMax);
  const calls = assemble(limits.toolCallMaxBytes, limits.toolCallsMax, limits.toolCallsMaxBytes);
  let count = 0;
  let hasInvalid = false;

  const place = ({ stdout, stderr }: Lengths) => ({
    number: ++count,
    stdoutAt: stdout,
    stderrAt: stderr,
  });

  return {
    shown,
    get hasInvalid() {
      return hasInvalid;
    },
    takeItem(frame, now) {
      const whole = displays(frame, now);
      if (whole === undefined) return undefined;
      const told = parseItem(whole.text);
      if (told === undefined) {
        hasInvalid = true;
        return undefined;
      }
      const item = { ...place(whole.at), ...told };
      shown.push(item);
      return item;
    },
    takeCall(frame, now) {
      const whole = calls(frame, now);
      if (whole === undefined) return undefined;
      const told = parseCall(whole.text);
      if (told === undefined || !names.includes(told.name)) return { id: idOf(whole.text) };
      const { id, ...call } = told;
      return { id, call: { ...place(whole.at), ...call } };
    },
  };
}

/** Joins pieces. The first byte of each is 0 if it is the last one, else 1. `at` is where the first one came. */
function assemble(bytesOfOne: number, most: number, bytesOfAll = Infinity) {
  let pieces: Buffer[] = [];
  let bytes = 0;
  let all = 0;
  let begun = 0;
  let at: Lengths = { stdout: 0, stderr: 0 };
  return (frame: Buffer, now: Lengths): { text: string; at: Lengths } | undefined => {
    if (pieces.length === 0) {
      at = { ...now };
      bytes = 0;
      begun++;
    }
    // Copied: it is a view of the larger piece that the stream brought.
    pieces.push(Buffer.from(frame.subarray(1)));
    bytes += frame.length - 1;
    all += frame.length - 1;
    if (frame.length < 2 || bytes > bytesOfOne || begun > most || all > bytesOfAll)
      throw new FrameError("more items than PID 1 relays");
    if (frame[0] !== 0) return undefined;
    const text = Buffer.concat(pieces).toString("utf8");
    pieces = [];
    return { text, at };
  };
}

/** More than any valid item has. */
const itemMaxValues = 100;

function parseItem(text: string): Pick<DisplayItem, "main" | "data"> | undefined {
  try {
    const { main, data } = Item.parse(parsePlainJson(text, { depth: 2, values: itemMaxValues }));
    const forms = Object.entries(data).map(([type, form]) => [type, form.toWellFormed()]);
    return { main, data: Object.fromEntries(forms) as typeof data };
  } catch {
    return undefined;
  }
}

function parseCall(text: string): Call | undefined {
  try {
    return Call.parse(parseJson(text, { depth: callDepthMax, values: limits.requestMaxValues }));
  } catch {
    return undefined;
  }
}

/** As tools.py writes it, also where the rest cannot be parsed. */
const idOf = (text: string): number => Number(/^\{"id":(\d{1,4}),/.exec(text)?.[1] ?? 0);
