/** The part of a record that the timeline needs. */
export interface Timed {
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
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

/** What an execution spent its time with, from its submission. */
export function phasesOf(
  { created_at, started_at, ended_at, timing }: Timed,
  now: number,
): Phase[] {
  const created = Date.parse(created_at);
  const ended = ended_at === null ? now : Date.parse(ended_at);
  const started = started_at === null ? ended : Date.parse(started_at);
  const phases = [{ name: "Waited", startMs: 0, durationMs: started - created }];
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
