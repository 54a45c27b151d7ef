import { useSignal } from "@preact/signals";
import { addressOf } from "../model/address.ts";
import { timesOf } from "../model/phases.ts";
import { formatDuration } from "../model/time.ts";
import { Age, Empty, ExecutionLink, Heading, Loading, Problem, Status } from "../parts/common.tsx";
import { Bulk, type BulkJob } from "../panels/bulk.tsx";
import { Filters } from "../panels/filters.tsx";
import { Program } from "../panels/programs.tsx";
import { Pages } from "../parts/pages.tsx";
import { number, Table, wide } from "../parts/table.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import {
  allExecutions,
  cancel,
  filtersOf,
  type Listed,
  listExecutions,
  rerun,
} from "../service/records.ts";

const pageSize = 50;
const firstCall = { path: "/execute", body: { code: "print('hello')" } };

/** All executions, newest first. The query of its address has the names of the interface. */
export function Executions({ query }: { query: URLSearchParams }) {
  const feed = useFeed(`executions ${query}`, (signal) => listExecutions(query, pageSize, signal));
  const { data, problem, refresh } = feed.value;
  const filters = filtersOf(query);
  const isFiltered = Object.values(filters).some(({ length }) => length > 0);
  const isLive = ["queued", "running"].includes(query.get("status") ?? "");
  const bulk = useSignal<BulkJob<string> | undefined>(undefined);
  const last = data?.items.at(-1);

  return (
    <>
      <Heading title="Executions">
        {isFiltered &&
          data &&
          data.items.length > 0 &&
          (isLive ? (
            <button class="danger" onClick={() => (bulk.value = cancellationOf(query))}>
              Cancel all of these
            </button>
          ) : (
            <button onClick={() => (bulk.value = rerunOf(query))}>Rerun all of these</button>
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
      <Loading feed={feed.value} />
      <Pages
        view="executions"
        filters={filters}
        isFirst={!query.get("before")}
        before={data?.has_more ? last?.execution_id : undefined}
      />
    </>
  );
}

function rerunOf(query: URLSearchParams): BulkJob<string> {
  return {
    title: "Run again",
    thing: "execution",
    note: "Each is queued as a new job. If the queue is full, the rest waits until there is room.",
    collect: (signal) => allExecutions(query, signal),
    act: (id, run) => rerun(id, `${run} ${id}`),
  };
}

function cancellationOf(query: URLSearchParams): BulkJob<string> {
  return {
    title: "Cancel executions",
    thing: "execution",
    note: "Those that wait never run. Those that run are ended, and their output so far is kept.",
    isDangerous: true,
    collect: (signal) => allExecutions(query, signal),
    act: cancel,
  };
}

export function ExecutionTable({ items }: { items: Listed[] }) {
  return (
    <Table
      opensRows
      columns={[
        "Status",
        "Execution",
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
              ...filtersOf(new URLSearchParams(location.search)),
              metadata: `${name}:${value}`,
            })}
          >
            {name}: {value}
          </a>
        ))}
      </td>
    </tr>
  );
}
