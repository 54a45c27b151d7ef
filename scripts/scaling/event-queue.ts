import TinyQueue from "tinyqueue";

/** What is to happen, the earliest first; at one time in the order in which it was added. */
export type EventQueue = {
  readonly add: (atS: number, happen: (nowS: number) => void) => void;
  /** Lets everything happen up to a time, and whatever follows from it. */
  readonly runUntil: (endS: number) => void;
};

type Event = {
  readonly atS: number;
  readonly order: number;
  readonly happen: (nowS: number) => void;
};

export function createEventQueue(): EventQueue {
  const queue = new TinyQueue<Event>([], (a, b) => a.atS - b.atS || a.order - b.order);
  let added = 0;
  return {
    add: (atS, happen) => queue.push({ atS, order: added++, happen }),
    runUntil: (endS) => {
      for (let next = queue.peek(); next && next.atS <= endS; next = queue.peek()) {
        queue.pop();
        next.happen(next.atS);
      }
    },
  };
}
