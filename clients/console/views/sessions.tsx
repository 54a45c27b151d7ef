import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../../typescript/src/generated.ts";
import { addressOf, sessionAddress } from "../model/address.ts";
import { formatCount, formatDuration, formatTime, withLocalTimes } from "../model/numbers.ts";
import { errorLine } from "../model/record.ts";
import { Editor, useCtrlEnter } from "../parts/editor.tsx";
import {
  announce,
  confirm,
  Empty,
  ExecutionLink,
  Fold,
  Heading,
  Labels,
  Loading,
  Problem,
  ScopedButton,
  Select,
  SessionLink,
  shortId,
  Status,
  whyNot,
} from "../parts/elements.tsx";
import { Kinds, ListView } from "../parts/list.tsx";
import { Program, Result, Times, useFollowed } from "../parts/run.tsx";
import {
  actions,
  age,
  type Column,
  digits,
  number,
  plain,
  whoseIfAll,
  wide,
} from "../parts/table.tsx";
import { api, clock, lostSince, messageOf } from "../service/client.ts";
import { type Feed, useFeed, useOnce } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  getSubmitted,
  isEnded,
  listCalls,
  type ListedCall,
  type Page,
  sessions,
  stateOf,
  whyOf,
} from "../service/records.ts";

const kinds = [undefined, "ready", "starting", "queued", "ended"] as const;
const firstCall = { path: "/sessions", body: { idle_timeout: 600 } };

/** Interpreters that remember, newest first: those that take calls, and those that have ended. */
export function Sessions({ query }: { query: URLSearchParams }) {
  const status = query.get("status") ?? undefined;
  return (
    <ListView
      title="Sessions"
      view="sessions"
      query={query}
      source={sessions}
      columns={columns()}
      opensRows
      actions={<NewSession />}
      filters={({ data }) =>
        (data?.items.length || status) && (
          <Kinds
            label="States"
            kinds={kinds.map((kind) => ({
              title: kind ?? "all",
              address: addressOf("sessions", { status: kind }),
              isHere: status === kind,
            }))}
          />
        )
      }
      noMatch={`No session is ${status}.`}
      empty={
        <>
          <Empty>
            A session is a Python interpreter that keeps its variables and files from one call to
            the next. Start one here, or from a program:
          </Empty>
          <Program call={firstCall} />
        </>
      }
    />
  );
}

const columns = (): Column<Session>[] => [
  plain("Status", (session) => <Status status={stateOf(session)} />),
  plain("Session", ({ session_id }) => <SessionLink id={session_id} />),
  ...whoseIfAll(),
  plain("Job type", ({ job_type }) => job_type),
  digits("Python", ({ python_version }) => python_version ?? "–"),
  number("Calls", ({ calls }) => formatCount(calls)),
  age("Made", ({ created_at }) => created_at, { isNamed: true }),
  age("Used", ({ used_at }) => used_at, { isNamed: true }),
  wide("Reason and metadata", (session) => {
    const why = whyOf(session);
    return (
      <>
        {why && <span class="error-line">{why}</span>}
        <Labels of={session.metadata} />
      </>
    );
  }),
  actions(
    ({ session_id: id, status }, refresh) =>
      status !== "ended" && (
        <ScopedButton
          scope="run"
          class="small"
          aria-label={`End session ${shortId(id)}`}
          onClick={() => confirmEnd(id, refresh)}
        >
          End
        </ScopedButton>
      ),
  ),
];

/** While it is open, its state changes with each call. */
const openMs = 2000;

/** One session: a prompt that runs cells in it, and what its calls did. */
export function SessionView({ id }: { id: string }) {
  const feed = useFeed(
    `session ${id}`,
    (options) => api.getSession({ id }, options),
    openMs,
    ({ status }) => status === "ended",
  );
  const calls = useFeed(
    `calls of ${id}`,
    ({ signal }) => listCalls(id, signal),
    openMs,
    ({ items }) => feed.value.data?.status === "ended" && items.every(isEnded),
  );
  const { data: session, problem } = feed.value;
  const look = (): void => {
    feed.value.refresh();
    calls.value.refresh();
  };
  const run = async (code: string): Promise<void> => {
    await api.executeInSessionAsync({ id, callRequest: { code } });
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
  const { session_id: id, busy } = session;
  const tell = async (work: Promise<unknown>, done: string): Promise<void> => {
    await work;
    announce(done);
    onChange();
  };
  const restart = { id, callRequest: { restart: true } };
  return (
    <div class="actions">
      <ScopedButton
        scope="run"
        aria-disabled={!busy}
        work={async () => {
          if (busy) await tell(api.interruptSession({ id }), "Interrupted: variables stay");
        }}
      >
        Interrupt
      </ScopedButton>
      <ScopedButton
        scope="run"
        work={() =>
          tell(api.executeInSessionAsync(restart), "The interpreter starts anew: files stay")
        }
      >
        Restart
      </ScopedButton>
      <ScopedButton scope="run" class="danger" onClick={() => confirmEnd(id, onChange)}>
        End
      </ScopedButton>
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
  const summary = (
    <>
      <span class="strong number">{call.call}</span> <Status status={call.status} />{" "}
      <Times record={call} />
      {context !== "default" && <span class="quiet"> in context {context.slice(-8)}</span>}
      {call.error && <span class="quiet error-line"> {call.error.message}</span>}
    </>
  );
  return (
    <Fold isOpen={isNewest} summary={summary}>
      {() => <Cell id={id} />}
    </Fold>
  );
}

/** What a call was asked, and what came of it, followed while it runs. */
function Cell({ id }: { id: string }) {
  const following = useFollowed(id);
  const submitted = useOnce(`submitted ${id}`, ({ signal }) => getSubmitted(id, signal));
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
  const types = useOnce("names of job types", api.listJobTypes);
  const jobType = useSignal("default");
  const isMaking = useSignal(false);
  const make = async (): Promise<void> => {
    isMaking.value = true;
    try {
      // Does not wait until it is ready: its page shows what it waits for.
      const sessionRequest = { job_type: jobType.value, wait: 0 };
      const { session_id: id } = await api.createSession({ sessionRequest });
      go(sessionAddress(id));
    } finally {
      isMaking.value = false;
    }
  };
  return (
    <>
      <Select
        label="Job type"
        class="inline"
        value={jobType.value}
        options={(types.value.data ?? []).map(({ name }) => name)}
        onChange={(next) => (jobType.value = next)}
      />
      <ScopedButton scope="run" class="primary" disabled={isMaking.value} work={make}>
        New session
      </ScopedButton>
    </>
  );
}

/** Asks before a session is ended, which cannot be undone. */
function confirmEnd(id: string, onEnd: () => void): void {
  confirm({
    title: `End session ${shortId(id)}`,
    action: "End",
    text: "Its variables and files are gone then, and a call that runs is cancelled. What its calls wrote and showed stays in their records.",
    work: async () => {
      await api.deleteSession({ id });
      announce("The session has ended");
      onEnd();
    },
  });
}
