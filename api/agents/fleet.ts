import { eq, getTableColumns, gt } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type Environment, imageOf } from "../jobs/environment.ts";
import { agentChanges, agents } from "../store/schema.ts";
import { given, query } from "../store/statement.ts";
import { type AnyDb, keptTenantRows, perDatabase } from "../store/tenant.ts";
import type { AgentRow } from "./agents.ts";
import { isLive, servingAgents } from "./placement.ts";

/**
 * What a process knows of the agents' table. Each look reads only the rows that have changed since the look before:
 * while each look read all rows, the cost of a fleet grew with the square of its size.
 */
interface Fleet {
  /** The last change that it knows. */
  seq: number;
  rows: Map<string, AgentRow>;
  /** Without those that have left, by name. */
  present: AgentRow[];
  /** Undefined once it may be wrong. */
  serving: Serving | undefined;
  /** Names the kinds that served when it was last worked out. */
  kinds: string | undefined;
}

interface Serving {
  agents: AgentRow[];
  /** The job types and images that it was worked out for. */
  wanted: string;
  /** Nobody of `agents` counts as silent until then (epoch ms). */
  until: number;
  /** Agents that were silent. */
  silent: ReadonlySet<string>;
}

const fleetOf = perDatabase<Fleet>(() => ({
  seq: 0,
  rows: new Map(),
  present: [],
  serving: undefined,
  kinds: undefined,
}));

/** Every known agent that has not left, by name. */
export async function listAgents(db: AnyDb): Promise<AgentRow[]> {
  return (await look(db)).present;
}

/** Finds also an agent that has left. */
export async function findAgent(db: AnyDb, id: string): Promise<AgentRow | undefined> {
  return (await look(db)).rows.get(id);
}

/**
 * Agents that could take work now, one of each kind: agents of one kind differ in nothing that decides what may run
 * where. When a kind or a job type comes or goes, all polls look again, because what they may run depends on it.
 */
export async function servingKinds(
  { config, db, now, notifier }: Deps,
  environments: Environment[],
): Promise<AgentRow[]> {
  const fleet = await look(db);
  const at = now();
  const wanted = JSON.stringify(environments.map((one) => [one.jobType.name, imageOf(one)]));
  const known = fleet.serving;
  if (known?.wanted === wanted && at <= known.until) return known.agents;

  const kinds = new Map<string, AgentRow>();
  const nameOf = kindNamer(environments);
  for (const agent of servingAgents(fleet.present, config, at)) {
    const kind = nameOf(agent);
    const other = kinds.get(kind);
    if (!other || agent.lastSeenAt > other.lastSeenAt) kinds.set(kind, agent);
  }
  const agents = [...kinds.values()];
  const until = Math.min(...agents.map(({ lastSeenAt }) => lastSeenAt + config.liveness_s * 1000));
  const silent = fleet.present.filter((agent) => !isLive(agent, config, at));
  fleet.serving = { agents, wanted, until, silent: new Set(silent.map(({ id }) => id)) };
  const names = wanted + [...kinds.keys()].sort().join();
  const isNews = fleet.kinds !== undefined && fleet.kinds !== names;
  fleet.kinds = names;
  if (isNews) notifier.notify("queue");
  return agents;
}

/** Names the kind of an agent by what of it counts for these job types. */
function kindNamer(environments: Environment[]): (agent: AgentRow) => string {
  const labels = [...new Set(environments.flatMap(({ jobType }) => Object.keys(jobType.labels)))];
  const images = [...new Set(environments.map(imageOf))];
  return (agent) => {
    const { job_types, builds, tenant_builds, inputs } = agent.accepts;
    return JSON.stringify([
      labels.map((name) => agent.labels[name] ?? null),
      agent.gpus.total,
      images.filter((image) => agent.images.includes(image)),
      [job_types, builds, tenant_builds, inputs],
    ]);
  };
}

async function look(db: AnyDb): Promise<Fleet> {
  const fleet = fleetOf(db);
  const news = await newChanges(db, { seq: fleet.seq });
  // Another look may have been faster, and know more.
  if (lastOf(news) <= fleet.seq) return fleet;
  const unknown = news.filter(({ seq }) => seq > fleet.seq);
  const isAnyGone = unknown.some(({ agentId }) => agentId === "");
  if (!isAnyGone || fleet.seq === 0) return learn(fleet, unknown);
  const all = await allChanges(db, { seq: 0 });
  if (lastOf(all) <= fleet.seq) return fleet;
  fleet.rows.clear();
  fleet.serving = undefined;
  return learn(fleet, all);
}

type Change = Awaited<ReturnType<typeof newChanges>>[number];
const lastOf = (changes: Change[]): number => changes.at(-1)?.seq ?? 0;

function learn(fleet: Fleet, changes: Change[]): Fleet {
  let isSteady = fleet.serving !== undefined;
  for (const { seq: _seq, agentId, ...row } of changes) {
    if (row.id === null) continue;
    const agent = row as AgentRow;
    const known = fleet.rows.get(agentId);
    isSteady &&=
      known !== undefined &&
      !fleet.serving!.silent.has(agentId) &&
      placeOf(agent) === placeOf(known);
    // In place, so that a change costs the same in a fleet of any size.
    if (known) Object.assign(known, agent);
    else fleet.rows.set(agentId, agent);
  }
  fleet.seq = lastOf(changes);
  if (isSteady) return fleet;
  fleet.serving = undefined;
  const present = [...fleet.rows.values()].filter(({ leftAt }) => leftAt === null);
  fleet.present = present.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return fleet;
}

/** All of an agent's row but what the agent tells of its work, and when. */
function placeOf(agent: AgentRow): string {
  const { name, labels, accepts, gpus, images, engine, breaker, drainingAt, leftAt } = agent;
  const isUp = [engine.available, breaker.state, drainingAt, leftAt];
  return JSON.stringify([name, labels, accepts, gpus.total, images, isUp]);
}

const changes = () =>
  query
    .select({ seq: agentChanges.seq, agentId: agentChanges.agentId, ...getTableColumns(agents) })
    .from(agentChanges)
    .leftJoin(agents, eq(agents.id, agentChanges.agentId))
    .where(gt(agentChanges.seq, given("seq")))
    .orderBy(agentChanges.seq);
/** What it returned before is returned again, as long as nobody has changed an agent since. */
const newChanges = keptTenantRows(changes, "agents");
const allChanges = keptTenantRows(changes);
