import { useSignal } from "@preact/signals";
import { addressOf } from "../model/address.ts";
import { formatDuration, formatTime, withLocalTimes } from "../model/time.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Heading, Loading, Problem, shortId, Status } from "../parts/common.tsx";
import { ScopedButton } from "../parts/scoped-button.tsx";
import { Calls } from "../panels/sessions/calls.tsx";
import { EndSession } from "../panels/sessions/end-session.tsx";
import { Prompt } from "../panels/sessions/prompt.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import {
  getSession,
  interrupt,
  listCalls,
  restart,
  runCell,
  type Session,
  stateOf,
  whyOf,
} from "../service/sessions.ts";

/** While it is open, its state changes with each call. */
const openMs = 2000;

/** One session: a prompt that runs cells in it, and what its calls did. */
export function SessionView({ id }: { id: string }) {
  const feed = useFeed(`session ${id}`, (signal) => getSession(id, signal), isOver, openMs);
  const calls = useFeed(
    `calls of ${id}`,
    (signal) => listCalls(id, signal),
    ({ items }) => feed.value.data?.status === "ended" && !items.some(isOpen),
    openMs,
  );
  const { data: session, problem } = feed.value;
  const look = (): void => {
    feed.value.refresh();
    calls.value.refresh();
  };
  const run = async (code: string): Promise<void> => {
    await runCell(id, code);
    look();
  };
  return (
    <>
      <Heading
        title={`Session ${shortId(id)}`}
        tabTitle={session && `${stateOf(session)}: session ${shortId(id)}`}
      >
        {session && session.status !== "ended" && <Actions session={session} onChange={look} />}
      </Heading>
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {problem && !session && (
        <p>
          <a href={addressOf("sessions")}>To the sessions</a>
        </p>
      )}
      {session && <About session={session} />}
      {session && session.status !== "ended" && <Prompt onRun={run} />}
      {session?.status === "ended" && (
        <p class="note">
          <span>Its variables and files are gone. What its calls did stays in their records.</span>
          <a href={addressOf("sessions")}>To the sessions</a>
        </p>
      )}
      <Calls feed={calls.value} session={id} />
    </>
  );
}

const isOver = ({ status }: Session): boolean => status === "ended";
const isOpen = ({ status }: { status: string }): boolean =>
  status === "queued" || status === "running";

function About({ session }: { session: Session }) {
  const why = whyOf(session);
  const { job_type, python_version, container_backend, container_runtime, metadata } = session;
  const parts = [
    job_type,
    python_version && `Python ${python_version}`,
    container_backend === "zygote" ? "forked" : container_backend && "in a container",
    container_runtime,
    ...session.requirements,
    ...Object.entries(metadata ?? {}).map(([name, value]) => `${name}: ${value}`),
  ];
  return (
    <p class="summary">
      <span role="status">
        <Status status={stateOf(session)} />
      </span>
      {why && <span class="quiet">{withLocalTimes(why)}</span>}
      <span class="quiet number">{lifeOf(session)}</span>
      <span class="quiet">{parts.filter(Boolean).join(", ")}</span>
    </p>
  );
}

function lifeOf({ status, idle_timeout, expires_at, ended_at, used_at, ready_at }: Session) {
  if (ended_at !== null) return `ended ${formatTime(ended_at)}`;
  const left = Date.parse(expires_at) - clock.value;
  const lives = left > 0 ? `ends in ${formatDuration(left)}` : "ends now";
  const last = used_at ?? ready_at;
  if (status !== "ready" || idle_timeout === null || last === null) return lives;
  return `${lives}, or ${formatDuration(idle_timeout * 1000)} after its last call`;
}

function Actions({ session, onChange }: { session: Session; onChange: () => void }) {
  const isEnding = useSignal(false);
  const { session_id: id, busy } = session;
  const act = (work: (id: string) => Promise<unknown>, done: string) => (): void =>
    void attempt(async () => {
      await work(id);
      announce(done);
      onChange();
    });
  return (
    <div class="actions">
      <ScopedButton
        scope="run"
        aria-disabled={!busy}
        onClick={busy ? act(interrupt, "Interrupted: variables stay") : undefined}
      >
        Interrupt
      </ScopedButton>
      <ScopedButton scope="run" onClick={act(restart, "The interpreter starts anew: files stay")}>
        Restart
      </ScopedButton>
      <ScopedButton scope="run" class="danger" onClick={() => (isEnding.value = true)}>
        End
      </ScopedButton>
      {isEnding.value && (
        <EndSession id={id} onEnd={onChange} onClose={() => (isEnding.value = false)} />
      )}
    </div>
  );
}
