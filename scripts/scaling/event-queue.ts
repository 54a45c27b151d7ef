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
  /** A binary heap: no event is later than its children at 2i + 1 and 2i + 2. */
  const heap: Event[] = [];
  let added = 0;
  const isBefore = (a: Event, b: Event) => a.atS < b.atS || (a.atS === b.atS && a.order < b.order);

  function add(atS: number, happen: Event["happen"]): void {
    const event = { atS, order: added++, happen };
    let at = heap.length;
    for (; at > 0;) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  function takeFirst(): Event {
    const first = heap[0]!;
    const last = heap.pop()!;
    if (heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
      if (!isBefore(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }

  return {
    add,
    runUntil: (endS) => {
      while (heap.length > 0 && heap[0]!.atS <= endS) {
        const { atS, happen } = takeFirst();
        happen(atS);
      }
    },
  };
}
