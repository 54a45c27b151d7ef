import type { Deps } from "../deps.ts";
import { isLive } from "../domain/capacity.ts";
import { historyMs, minuteMs } from "../domain/history.ts";
import { listAgents } from "../store/agents/agents.ts";
import { readQueueStats } from "../store/jobs/queue.ts";
import { addMinute, lastMinute } from "../store/minutes.ts";

/** Records the state of the service, once a minute. */
export async function recordMinute({ config, db, now }: Deps): Promise<void> {
  const time = now();
  const at = time - (time % minuteMs);
  if (((await lastMinute(db)) ?? 0) >= at) return;
  const [agents, { pending, running }] = await Promise.all([listAgents(db), readQueueStats(db)]);
  const live = agents.filter((agent) => isLive(agent, config, time));
  const slots = live.reduce((sum, agent) => sum + agent.slots, 0);
  await addMinute(db, { at, pending, running, slots }, at - historyMs - minuteMs);
}
