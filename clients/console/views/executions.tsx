import { addressOf } from "../model/address.ts";
import { formatDuration } from "../model/time.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Age, Empty, ExecutionLink, Heading, Problem, Status } from "../parts/common.tsx";
import { Filters } from "../panels/filters.tsx";
import { timesOf } from "../panels/result.tsx";
import { clock, useFeed } from "../service/feed.ts";
import { filterNames, type Listed, listExecutions, rerun } from "../service/records.ts";

const pageSize = 50;

/** All executions, newest first. The query of its address has the names of the interface. */
export function Executions({ query }: { query: URLSearchParams }) {
  const feed = useFeed(`executions ${query}`, (signal) => listExecutions(query, pageSize, signal));
  const { data, problem, refresh } = feed.value;
  const filters = Object.fromEntries(
    filterNames.map((name) => [name, query.get(name) ?? undefined]),
  );
  const isFiltered = filterNames.some((name) => query.get(name));
  const last = data?.items.at(-1);

  const rerunAll = async (items: Listed[]): Promise<void> => {
    if (!confirm(`Run ${items.length} executions again?`)) return;
    for (const { execution_id } of items) await rerun(execution_id);
    announce(`${items.length} executions queued again`);
    refresh();
  };

  return (
    <>
      <Heading title="Executions">
        {isFiltered && data && data.items.length > 0 && (
          <button onClick={() => void attempt(() => rerunAll(data.items))}>
            Rerun these {data.items.length}
          </button>
        )}
      </Heading>
      <Filters key={query.toString()} query={query} />
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
              Nothing has run yet. <a href={addressOf("")}>Run something</a>
            </>
          )}
        </Empty>
      )}
      {!data && !problem && <Empty>Loading…</Empty>}
      <nav class="pages" aria-label="Pages">
        {query.get("before") && <a href={addressOf("executions", filters)}>Newest</a>}
        {data?.has_more && last && (
          <a href={addressOf("executions", { ...filters, before: last.execution_id })}>Older</a>
        )}
      </nav>
    </>
  );
}

export function ExecutionTable({ items }: { items: Listed[] }) {
  return (
    <table class="list executions">
      <thead>
        <tr>
          <th scope="col">Status</th>
          <th scope="col">Execution</th>
          <th scope="col">Job type</th>
          <th scope="col">Submitted</th>
          <th scope="col" class="number">
            Waited
          </th>
          <th scope="col" class="number">
            Ran
          </th>
          <th scope="col" class="wide">
            Error
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map((item) => (
          <ExecutionRow key={item.execution_id} item={item} />
        ))}
      </tbody>
    </table>
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
            href={addressOf("executions", { metadata: `${name}:${value}` })}
          >
            {name}: {value}
          </a>
        ))}
      </td>
    </tr>
  );
}
