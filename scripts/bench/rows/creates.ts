import { setTimeout as sleep } from "node:timers/promises";
import type { Session } from "../../../shared/wire/client/session.ts";
import { HELLO } from "../bare.ts";
import { timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import type { Service } from "../service.ts";
import { endSession } from "../session.ts";

const CREATES = 1000;
const PLACES = 8;
const LOOK_MS = 20;
const PAGE = 100;

export const creates: Row = {
  name: "creates",
  what: `${CREATES.toLocaleString("en")} sessions made at once on ${PLACES} places, all of which get a place in the order in which they came; a hello alone, beside those that wait, and while each place is given up and taken again without a pause`,
  goal: "hello beside those that wait ≤ 1.5 × alone; each create 201 or 202, none lost, in order",
  measure: async (world) => {
    const count = world.quick ? 2 * PLACES : CREATES;
    await using service = await world.startService({
      config: {
        container_backend: "zygote",
        max_sessions: PLACES,
        max_sessions_per_tenant: CREATES,
      },
    });
    await service.warmUp(world.samples(300));
    const alone = await hellos(service, world.samples(100));
    const made = await Promise.all(
      Array.from({ length: count }, () => service.send<Session>("POST", "/sessions", { wait: 0 })),
    );
    const waiting = await hellos(service, world.samples(100));
    const isOver = new AbortController();
    const beside = hellos(service, Infinity, isOver.signal);
    const tookMs = await timed(() => giveUpAll(service, count));
    isOver.abort();
    await checkOrder(service, new Set(made.map(({ session_id }) => session_id)));
    return [
      { name: "hello alone", unit: "ms", samples: alone },
      { name: "hello beside those that wait", unit: "ms", samples: waiting },
      { name: "hello beside those that start", unit: "ms", samples: await beside },
      { name: "sessions that start", unit: "/s", samples: [(count / tookMs) * 1000] },
    ];
  },
  reaches: (of) => of("hello beside those that wait").p50 <= 1.5 * of("hello alone").p50,
};

/** Times of hellos, one after the other. */
async function hellos(service: Service, count: number, end?: AbortSignal): Promise<number[]> {
  const samples: number[] = [];
  const isOver = () => samples.length >= count || end?.aborted === true;
  while (!isOver()) samples.push(await timed(() => service.execute(HELLO)));
  return samples;
}

/** Ends each session when it is ready, until none is left. */
async function giveUpAll(service: Service, count: number): Promise<void> {
  for (let left = count; left > 0;) {
    const { items } = await service.send<{ items: Session[] }>("GET", "/sessions?status=ready");
    await Promise.all(items.map(({ session_id }) => endSession(service, session_id)));
    left -= items.length;
    if (items.length === 0) await sleep(LOOK_MS);
  }
}

/** @throws Error if one of the sessions was lost, or was taken before one that came earlier. */
async function checkOrder(service: Service, made: Set<string>): Promise<void> {
  let earliest = Infinity;
  let found = 0;
  for (let before: string | undefined; found < made.size;) {
    const from = before === undefined ? "" : `&before=${before}`;
    const { items } = await service.send<{ items: Session[] }>(
      "GET",
      `/sessions?limit=${PAGE}${from}`,
    );
    for (const { session_id, started_at, reason } of items) {
      const startedMs = Date.parse(started_at ?? "");
      const isRight = made.has(session_id) && reason === "deleted" && startedMs <= earliest;
      if (!isRight) throw new Error(`session ${session_id} was lost or out of order`);
      earliest = startedMs;
    }
    if (items.length === 0) throw new Error(`${made.size - found} sessions were lost`);
    found += items.length;
    before = items.at(-1)?.session_id;
  }
}
