import { useSignal } from "@preact/signals";
import { addressOf } from "../model/address.ts";
import { timesOf } from "../model/phases.ts";
import { formatCount, formatDuration } from "../model/time.ts";
import { Age, Empty, ExecutionLink, Heading, Loading, Problem, Status } from "../parts/common.tsx";
import { Bulk, type BulkJob } from "../panels/bulk.tsx";
import { Filters } from "../panels/filters.tsx";
import { Program } from "../panels/run/programs.tsx";
import { Fresh, Pages } from "../parts/pages.tsx";
import { ScopedButton } from "../parts/scoped-button.tsx";
import { number, Table, Whose, whose, wide } from "../parts/table.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { useList } from "../service/list.ts";
import {
  allExecutions,
  cancel,
  countExecutions,
  filtersOf,
  type Listed,
  listExecutions,
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
