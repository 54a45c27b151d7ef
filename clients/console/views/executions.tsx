import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { addressOf, executionAddress, type Parameters } from "../model/address.ts";
import { formatCount, formatDuration, formatTime } from "../model/numbers.ts";
import { timesOf } from "../model/record.ts";
import { Bulk, type BulkJob } from "../parts/bulk.tsx";
import {
  Age,
  announce,
  attempt,
  Empty,
  ExecutionLink,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  shortId,
  Status,
} from "../parts/elements.tsx";
import { Program } from "../parts/run.tsx";
import { Fresh, number, Pages, Table, Whose, whose, wide } from "../parts/table.tsx";
import { clock, serviceNow } from "../service/client.ts";
import { useFeed, useList } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  allExecutions,
  cancel,
  countExecutions,
  filtersOf,
  findByEnd,
  type Listed,
  listExecutions,
  listJobTypes,
  pageSize,
  rerun,
} from "../service/records.ts";

const countedMs = 30_000;
const firstCall = { path: "/execute", body: { code: "print('hello')" } };

/** All executions, newest first. The query of its address has the names of the interface. */
export function Executions({ query }: { query: URLSearchParams }) {
  const list = useList(
    "executions",
    query,
    (asked, signal) => listExecutions(asked, pageSize, signal),
    ({ execution_id: id }) => id,
  );
  const { data, problem, refresh } = list;
  const filters = filtersOf(query);
  const isFiltered = Object.values(filters).some(({ length }) => length > 0);
  const isLive =
    filters.status.length > 0 &&
    filters.status.every((status) => ["queued", "running"].includes(status));
  const isFirst = !query.get("before");
  const bulk = useSignal<BulkJob<Listed> | undefined>(undefined);
  const last = data?.items.at(-1);

  return (
    <>
      <Heading title="Executions">
        {data && (data.has_more || !isFirst) ? (
          <Count query={query} />
        ) : (
          data && <span class="quiet">{formatCount(data.items.length)} in all</span>
        )}
        <Fresh list={list} />
        {isFiltered &&
          data &&
          data.items.length > 0 &&
          (isLive ? (
            <ScopedButton
              scope="run"
              class="danger"
              onClick={() => (bulk.value = cancellationOf(query))}
            >
              Cancel all of these
            </ScopedButton>
          ) : (
            <ScopedButton scope="run" onClick={() => (bulk.value = rerunOf(query))}>
              Rerun all of these
            </ScopedButton>
          ))}
      </Heading>
      {bulk.value && (
        <Bulk job={bulk.value} onClose={() => ((bulk.value = undefined), refresh())} />
      )}
      <Filters query={query} />
      <Problem text={problem} />
      {data && data.items.length > 0 && <ExecutionTable items={data.items} />}
      {data?.items.length === 0 && (
        <Empty>
          {isFiltered ? (
            <>
              No execution matches. <a href={addressOf("executions")}>Show all</a>
            </>
          ) : (
            <>
              Nothing has run yet. <a href={addressOf("")}>Run something in the playground</a>, or
              from a program:
            </>
          )}
        </Empty>
      )}
      {data?.items.length === 0 && !isFiltered && <Program call={firstCall} />}
      <Loading feed={list} />
      <Pages
        view="executions"
        filters={filters}
        isFirst={isFirst}
        before={data?.has_more ? last?.execution_id : undefined}
      />
    </>
  );
}

/** How many there are on all pages. */
function Count({ query }: { query: URLSearchParams }) {
  const filters = addressOf("executions", filtersOf(query));
  const count = useFeed(
    `count of ${filters}`,
    (signal) => countExecutions(query, signal),
    undefined,
    countedMs,
  );
  const { data } = count.value;
  return <span class="quiet">{data && `${data} in all`}</span>;
}

function rerunOf(query: URLSearchParams): BulkJob<Listed> {
  return {
    title: "Run again",
    thing: "execution",
    note: "Each is queued as a new job. If the queue is full, the rest waits until there is room.",
    collect: (signal) => allExecutions(query, signal),
    act: ({ execution_id: id }, run) => rerun(id, `${run} ${id}`),
  };
}

function cancellationOf(query: URLSearchParams): BulkJob<Listed> {
  return {
    title: "Cancel executions",
    thing: "execution",
    note: "Those that wait never run. Those that run are ended, and their output so far is kept.",
    isDangerous: true,
    collect: (signal) => allExecutions(query, signal),
    act: ({ execution_id: id }) => cancel(id),
  };
}

export function ExecutionTable({ items }: { items: Listed[] }) {
  return (
    <Table
      opensRows
      columns={[
        "Status",
        "Execution",
        ...whose(),
        "Job type",
        "Submitted",
        number("Waited"),
        number("Ran"),
        wide("Error and metadata"),
      ]}
    >
      {items.map((item) => (
        <ExecutionRow key={item.execution_id} item={item} />
      ))}
    </Table>
  );
}

function ExecutionRow({ item }: { item: Listed }) {
  const { waited, ran } = timesOf(item, clock.value);
  const filters = filtersOf(new URLSearchParams(location.search));
  const labels = Object.entries(item.metadata ?? {});
  return (
    <tr>
      <td>
        <Status status={item.status} />
      </td>
      <td>
        <ExecutionLink id={item.execution_id} />
        {item.relationship && <span class="quiet"> {item.relationship}</span>}
      </td>
      <Whose of={item} />
      <td>{item.job_type}</td>
      <td class="quiet number-left">
        <Age at={item.created_at} />
      </td>
      <td class="number" data-name="waited">
        {formatDuration(waited)}
      </td>
      <td class="number" data-name="ran">
        {ran === undefined ? "–" : formatDuration(ran)}
      </td>
      <td class="wide">
        {item.error && <span class="error-line">{item.error.message || item.error.type}</span>}
        {labels.map(([name, value]) => (
          <a
            key={name}
            class="label"
            title={`${name}: ${value}`}
            href={addressOf("executions", {
              ...filters,
              metadata: [...new Set([...filters.metadata, `${name}:${value}`])],
            })}
          >
            {name}: {value}
          </a>
        ))}
      </td>
    </tr>
  );
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

/** Filters of the list. Each change is a new address. */
function Filters({ query }: { query: URLSearchParams }) {
  const types = useFeed("names of job types", listJobTypes, () => true);
  const names = types.value.data?.map(({ name }) => name) ?? [];
  const now = filtersOf(query);
  const change = (changes: Parameters): void =>
    go(addressOf("executions", { ...now, ...changes }), { stay: true });
  const chosenStatus = now.status.join();
  const offered = [...statuses.map((name): [string, string] => [name, name]), ...groups];
  const isOffered = chosenStatus === "" || offered.some(([value]) => value === chosenStatus);
  const chosenType = now.job_type[0] ?? "";
  const isTimed = [now.created_after, now.created_before].some((times) => times[0]);
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

  /** Filters without a control of their own: they can only be removed. */
  const others = [
    ...now.error.map((text) => ({ words: `error: ${text}`, without: { error: undefined } })),
    ...now.metadata.map((value) => ({
      words: value.replace(":", ": "),
      without: { metadata: now.metadata.filter((other) => other !== value) },
    })),
    ...now.parent_execution_id.map((id) => ({
      words: `made from ${shortId(id)}`,
      without: { parent_execution_id: undefined },
    })),
    ...now.batch_id.map((id) => ({
      words: `batch ${shortId(id)}`,
      without: { batch_id: undefined },
    })),
    ...now.session_id.map((id) => ({
      words: `session ${shortId(id)}`,
      without: { session_id: undefined },
    })),
  ];

  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(() => add(field.current?.value.trim() ?? ""));
      }}
    >
      <label>
        Status
        <select
          value={chosenStatus}
          onChange={(event) => change({ status: event.currentTarget.value.split(",") })}
        >
          <option value="">any</option>
          {!isOffered && <option value={chosenStatus}>{chosenStatus.replaceAll(",", ", ")}</option>}
          {offered.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <label>
        Job type
        <select
          value={chosenType}
          onChange={(event) => change({ job_type: event.currentTarget.value })}
        >
          <option value="">any</option>
          {[...new Set([...names, ...(chosenType ? [chosenType] : [])])].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Submitted
        <select
          value={isTimed ? "given" : ""}
          onChange={(event) => chooseTime(event.currentTarget.value)}
        >
          <option value="">any time</option>
          {periods.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
          <option value="given">between two times</option>
        </select>
      </label>
      {isTimed && (
        <>
          <Time
            title="From"
            iso={now.created_after[0]}
            onChange={(iso) => change({ created_after: iso })}
          />
          <Time
            title="Until"
            iso={now.created_before[0]}
            onChange={(iso) => change({ created_before: iso })}
          />
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
      {others.map(({ words, without }) => (
        <button
          key={words}
          type="button"
          class="small chip"
          aria-label={`Without ${words}`}
          onClick={() => change(without)}
        >
          <span>{words}</span> ✕
        </button>
      ))}
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
