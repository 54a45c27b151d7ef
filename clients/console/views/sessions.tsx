import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addressOf, sessionAddress } from "../model/address.ts";
import { formatCount, formatDuration, formatTime, withLocalTimes } from "../model/numbers.ts";
import { errorLine } from "../model/record.ts";
import { Editor, useCtrlEnter } from "../parts/editor.tsx";
import {
  Age,
  announce,
  attempt,
  Choice,
  Confirm,
  Empty,
  ExecutionLink,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  SessionLink,
  shortId,
  Status,
  whyNot,
} from "../parts/elements.tsx";
import { Program, Result, Times, useFollowed } from "../parts/run.tsx";
import { actions, Fresh, number, Pages, Table, Whose, whose, wide } from "../parts/table.tsx";
import { clock, lostSince, messageOf } from "../service/client.ts";
import { type Feed, useFeed, useList } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  createSession,
  endSession,
  getSession,
  getSubmitted,
  interrupt,
  listCalls,
  type ListedCall,
  listJobTypes,
  listSessions,
  type Page,
  restart,
  runCell,
  type Session,
  stateOf,
  whyOf,
} from "../service/records.ts";

const kinds = [undefined, "ready", "starting", "queued", "ended"] as const;
const firstCall = { path: "/sessions", body: { idle_timeout: 600 } };

/** Interpreters that remember, newest first: those that take calls, and those that have ended. */
export function Sessions({ query }: { query: URLSearchParams }) {
  const list = useList("sessions", query, listSessions, ({ session_id: id }) => id);
  const { data, problem, refresh } = list;
  const status = query.get("status") ?? undefined;
  const ending = useSignal<string | undefined>(undefined);
  const items = data?.items ?? [];
  return (
    <>
      <Heading title="Sessions">
        <Fresh list={list} />
        <NewSession />
      </Heading>
      {(items.length > 0 || status) && (
        <nav class="kinds" aria-label="States">
          {kinds.map((kind) => (
            <a
              key={kind ?? "all"}
              href={addressOf("sessions", { status: kind })}
              aria-current={status === kind ? "page" : undefined}
            >
              {kind ?? "all"}
            </a>
          ))}
        </nav>
      )}
      <Problem text={problem} />
      {items.length > 0 && (
        <Table
          opensRows
          columns={[
            "Status",
            "Session",
            ...whose(),
            "Job type",
            "Python",
            number("Calls"),
            "Made",
            "Used",
            wide("Reason and metadata"),
            actions,
          ]}
        >
          {items.map((session) => (
            <Row
              key={session.session_id}
              session={session}
              onEnd={() => (ending.value = session.session_id)}
            />
          ))}
        </Table>
      )}
      {data && items.length === 0 && status && (
        <Empty>
          No session is {status}. <a href={addressOf("sessions")}>Show all</a>
        </Empty>
      )}
      {data && items.length === 0 && !status && (
        <>
          <Empty>
            A session is a Python interpreter that keeps its variables and files from one call to
            the next. Start one here, or from a program:
          </Empty>
          <Program call={firstCall} />
        </>
      )}
      <Loading feed={list} />
      <Pages
        view="sessions"
        filters={{ status }}
        isFirst={!query.get("before")}
        before={data?.has_more ? items.at(-1)?.session_id : undefined}
      />
      {ending.value && (
        <EndSession id={ending.value} onEnd={refresh} onClose={() => (ending.value = undefined)} />
      )}
    </>
  );
}

function Row({ session, onEnd }: { session: Session; onEnd: () => void }) {
  const { session_id: id, status, job_type, python_version, calls, created_at, used_at } = session;
  const why = whyOf(session);
  return (
    <tr>
      <td>
        <Status status={stateOf(session)} />
      </td>
      <td>
        <SessionLink id={id} />
      </td>
      <Whose of={session} />
      <td>{job_type}</td>
      <td class="number-left" data-name="Python">
        {python_version ?? "–"}
      </td>
      <td class="number" data-name="calls">
        {formatCount(calls)}
      </td>
      <td class="quiet number-left" data-name="made">
        <Age at={created_at} />
      </td>
      <td class="quiet number-left" data-name="used">
        {used_at === null ? "–" : <Age at={used_at} />}
      </td>
      <td class="wide">
        {why && <span class="error-line">{why}</span>}
        {Object.entries(session.metadata ?? {}).map(([name, value]) => (
          <span key={name} class="label" title={`${name}: ${value}`}>
            {name}: {value}
          </span>
        ))}
      </td>
      <td class="row-actions">
        {status !== "ended" && (
          <ScopedButton
            scope="run"
            class="small"
            aria-label={`End session ${shortId(id)}`}
            onClick={onEnd}
          >
            End
          </ScopedButton>
        )}
      </td>
    </tr>
  );
}

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

interface CallsProps {
  feed: Feed<Page<ListedCall>>;
  session: string;
}

/** The calls of a session, the newest first and open. */
function Calls({ feed, session }: CallsProps) {
  const { data, problem } = feed;
  const items = data?.items ?? [];
  return (
    <section class="calls" aria-label="Calls">
      <Problem text={problem} />
      <Loading feed={feed} />
      {data && items.length === 0 && <Empty>It has no calls.</Empty>}
      {items.map((call, at) => (
        <Call key={call.execution_id} call={call} isNewest={at === 0} />
      ))}
      {data?.has_more && (
        <p>
          <a href={addressOf("executions", { session_id: session })}>All its calls</a>
        </p>
      )}
    </section>
  );
}

function Call({ call, isNewest }: { call: ListedCall; isNewest: boolean }) {
  const { execution_id: id, context = "default" } = call;
  const isOpen = useSignal(isNewest);
  return (
    <details open={isOpen.value} onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>
        <span class="strong number">{call.call}</span> <Status status={call.status} />{" "}
        <Times record={call} />
        {context !== "default" && <span class="quiet"> in context {context.slice(-8)}</span>}
        {call.error && <span class="quiet error-line"> {call.error.message}</span>}
      </summary>
      {isOpen.value && <Cell id={id} />}
    </details>
  );
}

/** What a call was asked, and what came of it, followed while it runs. */
function Cell({ id }: { id: string }) {
  const following = useFollowed(id);
  const submitted = useFeed(
    `submitted ${id}`,
    (signal) => getSubmitted(id, signal),
    () => true,
  );
  const { followed, problem } = following.value;
  const code = submitted.value.data?.code ?? "";
  return (
    <div class="cell-result">
      <p class="quiet">
        Its record: <ExecutionLink id={id} />
      </p>
      <Problem text={problem} />
      {code !== "" && (
        <Editor
          class="shown"
          label="Code of this call"
          language="python"
          text={code}
          failedLine={followed?.record?.error ? errorLine(followed.record.stderr) : undefined}
        />
      )}
      {followed && <Result followed={followed} />}
    </div>
  );
}

/** Where a person types a cell. It is empty again once the cell is sent. */
function Prompt({ onRun }: { onRun: (code: string) => Promise<void> }) {
  const code = useSignal("");
  const isSending = useSignal(false);
  const problem = useSignal("");
  /** Counts the cells: each has an editor of its own. */
  const sent = useSignal(0);
  useEffect(() => {
    if (lostSince.value === undefined) problem.value = "";
  }, [lostSince.value]);
  const isReady = code.value.trim() !== "" && !isSending.value && whyNot("run") === undefined;

  const run = async (): Promise<void> => {
    if (!isReady) return;
    isSending.value = true;
    problem.value = "";
    try {
      await onRun(code.value);
      code.value = "";
      sent.value += 1;
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isSending.value = false;
    }
  };
  useCtrlEnter(run);
  return (
    <section class="prompt" aria-label="Prompt">
      <Editor
        key={sent.value}
        class="cell"
        label="Cell"
        language="python"
        text=""
        onChange={(next) => (code.value = next)}
        isFocused
      />
      <p class="actions">
        <ScopedButton
          scope="run"
          class="primary"
          title="Ctrl+Enter"
          aria-disabled={!isReady}
          onClick={() => void run()}
        >
          Run <kbd>Ctrl ⏎</kbd>
        </ScopedButton>
        <span class="quiet hint">
          The value of the last expression is shown. Esc, then Tab leaves the editor.
        </span>
      </p>
      <Problem text={problem.value} />
    </section>
  );
}

/** Starts a session of a job type, and shows it. */
function NewSession() {
  const types = useFeed("names of job types", listJobTypes, () => true);
  const jobType = useSignal("default");
  const isMaking = useSignal(false);
  const make = async (): Promise<void> => {
    isMaking.value = true;
    try {
      const { session_id: id } = await createSession(jobType.value);
      go(sessionAddress(id));
    } finally {
      isMaking.value = false;
    }
  };
  return (
    <>
      <Choice
        label="Job type"
        value={jobType.value}
        names={(types.value.data ?? []).map(({ name }) => name)}
        onChange={(next) => (jobType.value = next)}
      />
      <ScopedButton
        scope="run"
        class="primary"
        disabled={isMaking.value}
        onClick={() => void attempt(make)}
      >
        New session
      </ScopedButton>
    </>
  );
}

interface EndSessionProps {
  id: string;
  onEnd: () => void;
  onClose: () => void;
}

/** Asks before a session is ended, which cannot be undone. */
function EndSession({ id, onEnd, onClose }: EndSessionProps) {
  const end = async (): Promise<void> => {
    await endSession(id);
    announce("The session has ended");
    onEnd();
  };
  return (
    <Confirm
      title={`End session ${shortId(id)}`}
      action="End"
      onConfirm={() => void attempt(end)}
      onClose={onClose}
    >
      Its variables and files are gone then, and a call that runs is cancelled. What its calls wrote
      and showed stays in their records.
    </Confirm>
  );
}
