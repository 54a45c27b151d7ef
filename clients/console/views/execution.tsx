import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { ExecutionRecord } from "../../typescript/src/generated.ts";
import { addressOf, executionAddress } from "../model/address.ts";
import { formatDuration, formatTime } from "../model/numbers.ts";
import { errorLine, failurePrompt, phasesOf } from "../model/record.ts";
import { callThatMade, filesOf, joinArguments, laidOut, readInput } from "../model/submission.ts";
import { Editor } from "../parts/editor.tsx";
import {
  Age,
  announce,
  copy,
  ExecutionLink,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  SessionLink,
  shortId,
  Status,
  Text,
} from "../parts/elements.tsx";
import { Artifacts, Programs, Result, Summary, useFollowed } from "../parts/run.tsx";
import { type Column, digits, number, plain, Table, wide } from "../parts/table.tsx";
import { api, clock } from "../service/client.ts";
import { forgetFork } from "../service/draft.ts";
import { useOnce } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  type Attempt,
  executions,
  getSubmitted,
  isEnded,
  loadPage,
  rerun,
  type Submitted,
} from "../service/records.ts";

const shownCharacters = 20_000;

/** One execution, followed while it runs. */
export function Execution({ id }: { id: string }) {
  const following = useFollowed(id);
  const feed = useOnce(`submitted ${id}`, ({ signal }) => getSubmitted(id, signal));
  const submitted = feed.value.data;
  const { followed, problem } = following.value;
  const record = followed?.record;
  return (
    <>
      <Heading
        title={`Execution ${shortId(id)}`}
        tabTitle={record && `${record.status}: execution ${shortId(id)}`}
      >
        {record && (
          <Actions record={record} submitted={submitted} isCancelling={followed.isCancelling} />
        )}
      </Heading>
      <Problem text={problem} />
      <Loading feed={{ data: followed, problem }} />
      {problem && (
        <p>
          <a href={addressOf("executions")}>To the executions</a>
        </p>
      )}
      {followed && <Summary followed={followed} isLinked={false} />}
      {record && (
        <div class="execution">
          <div class="execution-main">
            <Attempts record={record} />
            <Result followed={followed} />
            {submitted && <Program record={record} submitted={submitted} />}
          </div>
          <aside aria-label="About this execution">
            <Timeline record={record} />
            <Relatives record={record} />
            <Facts record={record} />
          </aside>
        </div>
      )}
    </>
  );
}

interface ActionsProps {
  record: ExecutionRecord;
  submitted: Submitted | undefined;
  isCancelling: boolean;
}

function Actions({ record, submitted, isCancelling }: ActionsProps) {
  const isAsked = useSignal(false);
  const isQueueing = useSignal(false);
  const { execution_id: id, status } = record;
  const hasFailed = ["failed", "timeout", "oom"].includes(status);
  const runAgain = async (): Promise<void> => {
    isQueueing.value = true;
    try {
      const { job_id } = await rerun(id);
      announce("Queued again");
      go(executionAddress(job_id));
    } finally {
      isQueueing.value = false;
    }
  };
  const cancel = async (): Promise<void> => {
    isAsked.value = true;
    announce("Cancelling…");
    await api.cancelJob({ id }).catch((error: unknown) => {
      isAsked.value = false;
      throw error;
    });
  };
  const copyPrompt = (): void => {
    if (!submitted) return;
    void copy(failurePrompt({ ...record, ...submitted }));
  };
  // What comes and goes is at the far end: a click meant for one action never meets another.
  return (
    <div class="actions">
      {hasFailed && (
        <button
          onClick={copyPrompt}
          disabled={!submitted}
          title="The failure as a question to a language model"
        >
          Copy as prompt
        </button>
      )}
      {!isEnded(record) && (
        <ScopedButton scope="run" class="danger" work={cancel}>
          {isAsked.value || isCancelling ? "Cancelling…" : "Cancel"}
        </ScopedButton>
      )}
      {/* A call without its session would find other variables. */}
      {!record.session_id && (
        <>
          <a class="button" href={addressOf("", { fork: id })} onClick={forgetFork}>
            Fork
          </a>
          <ScopedButton scope="run" disabled={isQueueing.value} work={runAgain}>
            Rerun
          </ScopedButton>
        </>
      )}
    </div>
  );
}

/** Arguments, standard input and files of an execution. */
function Given({ record }: { record: ExecutionRecord }) {
  const { args = [], stdin, execution_id: id } = record;
  const files = filesOf(record);
  return (
    <>
      {args.length > 0 && (
        <>
          <h2>Arguments</h2>
          <Text label="Arguments" text={joinArguments(args)} />
        </>
      )}
      {stdin && (
        <>
          <h2>Standard input</h2>
          <Text
            label="Standard input"
            text={stdin.slice(0, shownCharacters) + (stdin.length > shownCharacters ? "\n[…]" : "")}
          />
        </>
      )}
      {files.length > 0 && (
        <section aria-label="Input files">
          <h2>Input files</h2>
          <Artifacts id={id} artifacts={files} isInput />
        </section>
      )}
    </>
  );
}

function Program({ record, submitted }: { record: ExecutionRecord; submitted: Submitted }) {
  const read = readInput(submitted.input);
  const input = "input" in read ? read.input : {};
  const files = filesOf(record);
  return (
    <section aria-label="Program">
      <h2>Code</h2>
      <Editor
        class="shown"
        label="Code of this execution"
        language={record.language || record.command ? "text" : "python"}
        text={submitted.code}
        failedLine={isEnded(record) ? errorLine(record.stderr) : undefined}
      />
      <h2>Input</h2>
      <Editor
        class="shown"
        label="Input of this execution"
        language="json"
        text={laidOut(submitted.input)}
      />
      <Given record={record} />
      <Programs
        title="The call that made it"
        call={callThatMade(record, { code: submitted.code, input })}
      >
        {record.batch_id && (
          <p class="quiet">The job was part of a batch. This call makes only this job.</p>
        )}
        {files.length > 0 && !record.parent_execution_id && (
          <p class="quiet">
            Replace the placeholders with the ids of its files. A rerun gets the files without that.
          </p>
        )}
      </Programs>
    </section>
  );
}

/** Everything else that the record says. */
function Facts({ record }: { record: ExecutionRecord }) {
  const { resource_usage: usage, metadata, batch_id, session_id } = record;
  const facts: [string, ComponentChildren][] = [
    [
      "Id",
      <>
        <span class="id">{record.execution_id}</span>{" "}
        <button
          class="small"
          aria-label="Copy the id"
          onClick={() => void copy(record.execution_id)}
        >
          Copy
        </button>
      </>,
    ],
    [
      "Job type",
      <a href={addressOf("executions", { job_type: record.job_type })}>{record.job_type}</a>,
    ],
    ["Version", record.job_version],
    ["Language", record.language],
    ["Command", record.command && joinArguments(record.command)],
    ["Submitted", formatTime(record.created_at)],
    ["Not before", record.run_at && formatTime(record.run_at)],
    ["Started", record.started_at && formatTime(record.started_at)],
    ["Ended", record.ended_at && formatTime(record.ended_at)],
    ["Exit code", record.exit_code],
    ["CPU time", usage && formatDuration(usage.cpu_time_ms)],
    ["Memory", usage && `${usage.max_rss_mb.toFixed(1)} MiB at most`],
    ["Time limit", record.timeout && `${record.timeout} s`],
    ["Runtime", record.container_runtime],
    ["Sandbox", record.container_backend === "zygote" ? "forked" : null],
    ["Agent", record.status === "queued" ? null : record.attempts?.at(-1)?.agent],
    ["Attempts", attemptsOf(record)],
    ["Idempotency key", record.idempotency_key],
    ["Tenant", record.tenant],
    ["Correlation id", record.correlation_id && <span class="id">{record.correlation_id}</span>],
    ["Trace", record.traceparent && <span class="id">{record.traceparent}</span>],
    [
      "Session",
      session_id && (
        <>
          <SessionLink id={session_id} />, call {record.call}
        </>
      ),
    ],
    ["Context", record.context === "default" ? null : record.context],
    ["Batch", batch_id && <a href={addressOf("executions", { batch_id })}>{batch_id}</a>],
    ...Object.entries(metadata ?? {}).map(([name, value]): [string, ComponentChildren] => [
      name,
      <a href={addressOf("executions", { metadata: `${name}:${value}` })}>{value}</a>,
    ]),
  ];
  return (
    <dl class="facts">
      {facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function attemptsOf({ attempt, max_attempts: most }: ExecutionRecord): string | undefined {
  if (attempt === undefined || attempt === 0)
    return most === undefined ? undefined : `at most ${most}`;
  return most === undefined ? String(attempt) : `${attempt} of at most ${most}`;
}

/** Every attempt of a job, once one was lost. */
function Attempts({ record }: { record: ExecutionRecord }) {
  const { attempts = [] } = record;
  if (!attempts.some(isLost)) return null;
  return (
    <section aria-label="Attempts">
      <h2>Attempts</h2>
      <Table
        columns={attemptColumns(record)}
        items={attempts}
        idOf={({ claimed_at, agent_id }) => claimed_at + agent_id}
      />
    </section>
  );
}

const attemptColumns = (record: ExecutionRecord): Column<Attempt>[] => [
  digits("Attempt", ({ attempt }) => attempt),
  plain("Agent", ({ agent, agent_id }) => agent ?? agent_id, {
    class: "strong",
    hint: ({ agent_id }) => agent_id,
  }),
  plain("Began", ({ claimed_at }) => formatTime(claimed_at), { class: "quiet number-left" }),
  number("Took", (attempt) => formatDuration(lengthOf(attempt))),
  wide("End", (attempt) => <End {...{ attempt, record }} />, { class: "words" }),
];

const isLost = ({ outcome }: Attempt): boolean => outcome !== null && outcome !== "result";

const lengthOf = ({ claimed_at, ended_at }: Attempt): number =>
  (ended_at === null ? clock.value : Date.parse(ended_at)) - Date.parse(claimed_at);

const words = {
  released: "given back by the agent",
  agent_stopped: "the agent was stopped",
  agent_crashed: "the agent crashed",
  lease_expired: "the agent was not heard of until its lease expired",
} as const;

function End({ attempt, record }: { attempt: Attempt; record: ExecutionRecord }) {
  const { outcome, error, ended_at: endedAt, code_started_at: begunAt } = attempt;
  if (outcome === null || outcome === "result") {
    return <Status status={endedAt === null ? "running" : record.status} />;
  }
  const hasBegun = begunAt !== null || error?.phase === "execution";
  const when = hasBegun ? "while its code ran" : "before its code was known to run";
  return (
    <>
      {words[outcome]}, {when}
      {error && `: ${error.message}`}
    </>
  );
}

/** What the time went into, from submission to end, to one scale. */
function Timeline({ record }: { record: ExecutionRecord }) {
  const phases = phasesOf(record, clock.value);
  const total = Math.max(1, ...phases.map(({ startMs, durationMs }) => startMs + durationMs));
  const percent = (ms: number): string => `${((ms / total) * 100).toFixed(2)}%`;
  return (
    <section aria-label="Timeline">
      <ol class={`timeline ${record.status}`}>
        {phases.map(({ name, startMs, durationMs }) => (
          <li key={startMs} class={name.toLowerCase()}>
            <span>{name}</span>
            <span class="bar" aria-hidden="true">
              <span style={{ left: percent(startMs), width: percent(durationMs) }} />
            </span>
            <span class="number">{formatDuration(durationMs)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

const shown = 5;

/** What it was made from, and what was made from it. */
function Relatives({ record }: { record: ExecutionRecord }) {
  const { execution_id: id, parent_execution_id: parent, relationship } = record;
  const query = new URLSearchParams({ parent_execution_id: id });
  const children = useOnce(`children of ${id}`, ({ signal }) =>
    loadPage(executions, query, signal, shown),
  );
  const origin = useOnce(
    `parent of ${id}`,
    async ({ signal }) => parent && (await api.getJob({ id: parent }, { signal })),
  );
  const { items = [], has_more: hasMore } = children.value.data ?? {};
  if (!parent && items.length === 0) return null;
  return (
    <section aria-label="Parent and children" class="relatives">
      {parent && (
        <p>
          {relationship === "fork" ? "Fork" : "Rerun"} of <ExecutionLink id={parent} />{" "}
          {origin.value.data && <Status status={origin.value.data.status} />}
        </p>
      )}
      {items.length > 0 && (
        <>
          <h2>Made from it</h2>
          <ul>
            {items.map((item) => (
              <li key={item.execution_id}>
                <Status status={item.status} /> <ExecutionLink id={item.execution_id} />{" "}
                <span class="quiet">
                  {item.relationship}, <Age at={item.created_at} />
                </span>
              </li>
            ))}
          </ul>
          {hasMore && (
            <a href={addressOf("executions", { parent_execution_id: id })}>All of them</a>
          )}
        </>
      )}
    </section>
  );
}
