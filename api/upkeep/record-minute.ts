import type { Deps } from "../deps.ts";
import { isLive, totalSlots } from "../domain/agents/capacity.ts";
import { historyMs, minuteMs } from "../domain/history.ts";
import { listAgents } from "../store/agents/agents.ts";
import { readQueueStats } from "../store/statistics/queue.ts";
import { addMinute, lastMinute } from "../store/minutes.ts";

/** Records the state of the service, once a minute. */
export async function recordMinute({ config, db, now }: Deps): Promise<void> {
  const time = now();
  const at = time - (time % minuteMs);
  if (((await lastMinute(db)) ?? 0) >= at) return;
  const [agents, { pending, running }] = await Promise.all([listAgents(db), readQueueStats(db)]);
  const live = agents.filter((agent) => isLive(agent, config, time));
  const minute = { at, pending, running, slots: totalSlots(live) };
  await addMinute(db, minute, at - historyMs - minuteMs);
}
