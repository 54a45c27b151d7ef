import { useRef } from "preact/hooks";
import { addressOf, executionAddress, type Parameters } from "../model/address.ts";
import { formatCount, formatDuration, formatTime } from "../model/numbers.ts";
import { timesOf } from "../model/record.ts";
import type { BulkJob } from "../parts/bulk.tsx";
import {
  announce,
  attempt,
  Empty,
  ExecutionLink,
  Labels,
  Select,
  shortId,
  Status,
} from "../parts/elements.tsx";
import { isGiven, ListView } from "../parts/list.tsx";
import { Program } from "../parts/run.tsx";
import { age, type Column, number, plain, whoseIfAll, wide } from "../parts/table.tsx";
import { api, clock, serviceNow } from "../service/client.ts";
import { useFeed, useOnce } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  countExecutions,
  executions,
  filtersOf,
  findByEnd,
  type Listed,
  rerun,
} from "../service/records.ts";

const countedMs = 30_000;
const firstCall = { path: "/execute", body: { code: "print('hello')" } };

const rerunAll: BulkJob<Listed> = {
  title: "Run again",
  thing: "execution",
  note: "Each is queued as a new job. If the queue is full, the rest waits until there is room.",
  act: ({ execution_id: id }, run) => rerun(id, `${run} ${id}`),
};
const cancelAll: BulkJob<Listed> = {
  title: "Cancel executions",
  thing: "execution",
  note: "Those that wait never run. Those that run are ended, and their output so far is kept.",
  isDangerous: true,
  act: ({ execution_id: id }) => api.cancelJob({ id }),
};

/** All executions, newest first. The query of its address has the names of the interface. */
export function Executions({ query }: { query: URLSearchParams }) {
  const filters = filtersOf(executions, query);
  const { status } = filters;
  const isLive = status.length > 0 && status.every((one) => ["queued", "running"].includes(one));
  const ofAll: [string, BulkJob<Listed>] = isLive
    ? ["Cancel all of these", cancelAll]
    : ["Rerun all of these", rerunAll];
  return (
    <ListView
      title="Executions"
      view="executions"
      query={query}
      source={executions}
      columns={executionColumns()}
      opensRows
      figures={({ data }) =>
        data &&
        (data.has_more || query.get("before") ? (
          <Count query={query} />
        ) : (
          <span class="quiet">{formatCount(data.items.length)} in all</span>
        ))
      }
      bulk={isGiven(filters) ? [ofAll] : []}
      filters={<Filters query={query} />}
      noMatch="No execution matches."
      empty={
        <>
          <Empty>
            Nothing has run yet. <a href={addressOf("")}>Run something in the playground</a>, or
            from a program:
          </Empty>
          <Program call={firstCall} />
        </>
      }
    />
  );
}

/** How many there are on all pages. */
function Count({ query }: { query: URLSearchParams }) {
  const filters = addressOf("executions", filtersOf(executions, query));
  const count = useFeed(
    `count of ${filters}`,
    ({ signal }) => countExecutions(query, signal),
    countedMs,
  );
  const { data } = count.value;
  return <span class="quiet">{data && `${data} in all`}</span>;
}

export const executionColumns = (): Column<Listed>[] => [
  plain("Status", ({ status }) => <Status status={status} />),
  plain("Execution", ({ execution_id: id, relationship }) => (
    <>
      <ExecutionLink id={id} />
      {relationship && <span class="quiet"> {relationship}</span>}
    </>
  )),
  ...whoseIfAll(),
  plain("Job type", ({ job_type }) => job_type),
  age("Submitted", ({ created_at }) => created_at),
  number("Waited", (item) => formatDuration(timesOf(item, clock.value).waited)),
  number("Ran", (item) => {
    const { ran } = timesOf(item, clock.value);
    return ran === undefined ? "–" : formatDuration(ran);
  }),
  wide("Error and metadata", ({ error, metadata }) => (
    <>
      {error && <span class="error-line">{error.message || error.type}</span>}
      <Labels of={metadata} hrefOf={narrowedBy} />
    </>
  )),
];

/** The list as it is shown, with one more pair of metadata in its filters. */
function narrowedBy(pair: string): string {
  const filters = filtersOf(executions, new URLSearchParams(location.search));
  const metadata = [...new Set([...filters.metadata, pair])];
  return addressOf("executions", { ...filters, metadata });
}

const statuses = ["queued", "running", "succeeded", "failed", "timeout", "oom", "cancelled"];
/** Statuses that are asked for together; several are written with a comma. */
const groups: [string, string][] = [
  ["queued,running", "not ended"],
  ["failed,timeout,oom", "failed, timeout or oom"],
];
const periods: [string, string, number][] = [
  ["1h", "last hour", 3_600_000],
  ["24h", "last 24 hours", 86_400_000],
  ["7d", "last 7 days", 604_800_000],
];
const isId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const isShortId = /^…?([0-9a-f]{8})$/i;
/** Without a space after the colon, because "ValueError: x" is a text of an error. */
const isPair = /^[\w.-]{1,64}:\S/;

/** Filters without a control of their own: they can only be removed. */
const others = {
  error: (text: string) => `error: ${text}`,
  metadata: (pair: string) => pair.replace(":", ": "),
  parent_execution_id: (id: string) => `made from ${shortId(id)}`,
  batch_id: (id: string) => `batch ${shortId(id)}`,
  session_id: (id: string) => `session ${shortId(id)}`,
};

/** Filters of the list. Each change is a new address. */
function Filters({ query }: { query: URLSearchParams }) {
  const types = useOnce("names of job types", api.listJobTypes);
  const now = filtersOf(executions, query);
  const [from, until] = [now.created_after[0], now.created_before[0]];
  const change = (changes: Parameters): void =>
    go(addressOf("executions", { ...now, ...changes }), { stay: true });
  const status = now.status.join();
  const offered = [...statuses, ...groups];
  const isOffered = status === "" || offered.flat().includes(status);
  const isTimed = from !== undefined || until !== undefined;
  const field = useRef<HTMLInputElement>(null);

  const add = async (text: string): Promise<void> => {
    if (isId.test(text)) return go(executionAddress(text));
    const end = isShortId.exec(text)?.[1];
    if (end !== undefined) {
      const id = await findByEnd(end);
      if (id !== undefined) return go(executionAddress(id));
      return announce(`None of the newest 1,000 executions has an id that ends in ${end}.`);
    }
    if (isPair.test(text)) change({ metadata: [...new Set([...now.metadata, text])] });
    else if (text !== "") change({ error: text });
    if (field.current) field.current.value = "";
  };

  const chooseTime = (chosen: string): void => {
    const period = periods.find(([value]) => value === chosen) ?? periods[1]!;
    const from = new Date(serviceNow() - period[2]).toISOString();
    change({ created_after: chosen === "" ? undefined : from, created_before: undefined });
  };

  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(() => add(field.current?.value.trim() ?? ""));
      }}
    >
      <Select
        label="Status"
        value={status}
        options={[
          ["", "any"],
          ...(isOffered ? [] : [[status, status.replaceAll(",", ", ")] as const]),
          ...offered,
        ]}
        onChange={(next) => change({ status: next.split(",") })}
      />
      <Select
        label="Job type"
        value={now.job_type[0] ?? ""}
        options={[["", "any"], ...(types.value.data ?? []).map(({ name }) => name)]}
        onChange={(next) => change({ job_type: next })}
      />
      <Select
        label="Submitted"
        value={isTimed ? "given" : ""}
        options={[
          ["", "any time"],
          ...periods.map(([value, title]) => [value, title] as const),
          ["given", "between two times"],
        ]}
        onChange={chooseTime}
      />
      {isTimed && (
        <>
          <Time title="From" iso={from} onChange={(iso) => change({ created_after: iso })} />
          <Time title="Until" iso={until} onChange={(iso) => change({ created_before: iso })} />
        </>
      )}
      <label class="grow">
        Id, metadata or error
        <input
          ref={field}
          type="search"
          placeholder="an id, key:value, or words of an error"
          title="Ctrl+K"
          aria-keyshortcuts="Control+K"
          spellcheck={false}
        />
      </label>
      {(Object.keys(others) as (keyof typeof others)[]).flatMap((name) =>
        now[name].map((value) => (
          <button
            key={name + value}
            type="button"
            class="small chip"
            aria-label={`Without ${others[name](value)}`}
            onClick={() => change({ [name]: now[name].filter((other) => other !== value) })}
          >
            <span>{others[name](value)}</span> ✕
          </button>
        )),
      )}
    </form>
  );
}

interface TimeProps {
  title: string;
  iso: string | undefined;
  onChange: (iso: string | undefined) => void;
}

/** A time to the minute, in the time zone of the person. */
function Time({ title, iso, onChange }: TimeProps) {
  return (
    <label>
      {title}
      <input
        type="datetime-local"
        value={iso ? formatTime(iso).slice(0, -3).replace(" ", "T") : ""}
        onChange={({ currentTarget: { value } }) =>
          onChange(value === "" ? undefined : new Date(value).toISOString())
        }
      />
    </label>
  );
}
