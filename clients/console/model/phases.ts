interface Attempt {
  attempt: number;
  claimed_at: string;
  ended_at: string | null;
}

/** The part of a record that says how long it waited and ran. */
export interface Timed {
  created_at: string;
  /** When the last attempt began. */
  started_at: string | null;
  ended_at: string | null;
  attempts?: Attempt[] | undefined;
}

/** What the timeline also needs. */
interface Detailed extends Timed {
  timing: {
    startup_ms: number;
    dep_install_ms: number;
    execution_ms: number;
    total_ms: number;
  } | null;
}

export interface Phase {
  name: string;
  startMs: number;
  durationMs: number;
}

/** How long the job waited for an agent, without lost attempts, and how long its last attempt ran. */
export function timesOf(record: Timed, now: number): { waited: number; ran: number | undefined } {
  const { created_at, started_at, ended_at } = record;
  const ended = ended_at === null ? now : Date.parse(ended_at);
  const started = started_at === null ? undefined : Date.parse(started_at);
  const lostMs = lostOf(record).reduce((sum, { from, to }) => sum + to - from, 0);
  return {
    waited: Math.max(0, (started ?? ended) - Date.parse(created_at) - lostMs),
    ran: started === undefined ? undefined : Math.max(0, ended - started),
  };
}

/** The attempts before the last one; all of them while the job waits again. */
const lostOf = ({ started_at, attempts = [] }: Timed) =>
  attempts.flatMap(({ attempt, claimed_at, ended_at }) =>
    claimed_at === started_at || ended_at === null
      ? []
      : [{ name: `Attempt ${attempt}`, from: Date.parse(claimed_at), to: Date.parse(ended_at) }],
  );

/** What an execution spent its time with, from its submission. */
export function phasesOf(record: Detailed, now: number): Phase[] {
  const { created_at, started_at, ended_at, timing } = record;
  const created = Date.parse(created_at);
  const ended = ended_at === null ? now : Date.parse(ended_at);
  const started = started_at === null ? ended : Date.parse(started_at);
  let waitsFrom = created;
  const phases: Phase[] = [];
  const waitUntil = (to: number): void => {
    phases.push({ name: "Waited", startMs: waitsFrom - created, durationMs: to - waitsFrom });
  };
  for (const { name, from, to } of lostOf(record)) {
    waitUntil(from);
    phases.push({ name, startMs: from - created, durationMs: to - from });
    waitsFrom = to;
  }
  waitUntil(started);
  if (started_at === null) return phases;
  if (!timing) {
    return [
      ...phases,
      {
        name: ended_at === null ? "Running" : "Ran",
        startMs: started - created,
        durationMs: ended - started,
      },
    ];
  }
  const { startup_ms, dep_install_ms, execution_ms, total_ms } = timing;
  let at = started - created;
  const parts: [string, number][] = [
    ["Start-up", startup_ms - dep_install_ms],
    ["Packages", dep_install_ms],
    ["Code", execution_ms],
    ["Files", total_ms - startup_ms - execution_ms],
  ];
  for (const [name, durationMs] of parts) {
    if (durationMs <= 0 && name !== "Code") continue;
    phases.push({ name, startMs: at, durationMs: Math.max(0, durationMs) });
    at += Math.max(0, durationMs);
  }
  return phases;
}
