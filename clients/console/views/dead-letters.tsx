import { addressOf } from "../model/address.ts";
import { attempt, announce } from "../parts/announce.ts";
import { Age, Empty, ExecutionLink, Heading, Problem } from "../parts/common.tsx";
import { useFeed } from "../service/feed.ts";
import {
  type DeadLetterPage,
  getDeadLetterStats,
  listDeadLetters,
  removeDeadLetter,
  rerun,
} from "../service/records.ts";

type Letter = DeadLetterPage["items"][number];

/** Asynchronous jobs that failed, by error type: read, run again, remove. */
export function DeadLetters({ query }: { query: URLSearchParams }) {
  const stats = useFeed("dead letter stats", getDeadLetterStats);
  const page = useFeed(`dead letters ${query}`, (signal) => listDeadLetters(query, signal));
  const { data, problem, refresh } = page.value;
  const type = query.get("error_type") ?? undefined;
  const counts = Object.entries(stats.value.data?.by_error_type ?? {}).toSorted(
    ([, a], [, b]) => b - a,
  );

  const looksAgain = (): void => {
    refresh();
    stats.value.refresh();
  };
  const remove = async (letters: Letter[]): Promise<void> => {
    for (const { id } of letters) await removeDeadLetter(id);
    announce(letters.length === 1 ? "Removed" : `${letters.length} removed`);
    looksAgain();
  };
  const runAgain = async (letters: Letter[]): Promise<void> => {
    for (const { id, job_id } of letters) {
      await rerun(job_id);
      await removeDeadLetter(id);
    }
    announce(letters.length === 1 ? "Queued again" : `${letters.length} queued again`);
    looksAgain();
  };

  const items = data?.items ?? [];
  return (
    <>
      <Heading title="Dead letters">
        {items.length > 0 && (
          <>
            <button
              onClick={() =>
                confirm(`Run ${items.length} jobs again?`) && void attempt(() => runAgain(items))
              }
            >
              Rerun these {items.length}
            </button>
            <button
              class="danger"
              onClick={() =>
                confirm(`Remove ${items.length} dead letters? The executions stay.`) &&
                void attempt(() => remove(items))
              }
            >
              Remove these {items.length}
            </button>
          </>
        )}
      </Heading>
      {counts.length > 0 && (
        <nav class="kinds" aria-label="Error types">
          <a href={addressOf("dead-letters")} aria-current={type ? undefined : "page"}>
            all <span class="number">{stats.value.data?.total}</span>
          </a>
          {counts.map(([name, count]) => (
            <a
              key={name}
              href={addressOf("dead-letters", { error_type: name })}
              aria-current={type === name ? "page" : undefined}
            >
              {name} <span class="number">{count}</span>
            </a>
          ))}
        </nav>
      )}
      <Problem text={problem} />
      {items.length > 0 && (
        <table class="list">
          <thead>
            <tr>
              <th scope="col">Error</th>
              <th scope="col">Execution</th>
              <th scope="col">Job type</th>
              <th scope="col">Submitted</th>
              <th scope="col">From</th>
              <th scope="col" class="wide">
                Message
              </th>
              <th scope="col">
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map((letter) => (
              <tr key={letter.id}>
                <td class="strong">{letter.error_type}</td>
                <td>
                  <ExecutionLink id={letter.job_id} />
                </td>
                <td>{letter.job_data.job_type}</td>
                <td class="quiet number-left">
                  <Age at={letter.created_at} />
                </td>
                <td class="quiet" title={`Correlation id ${letter.correlation_id}`}>
                  {letter.client_ip}
                </td>
                <td class="wide quiet" title={letter.error_message}>
                  {letter.error_message}
                </td>
                <td class="row-actions">
                  <button class="small" onClick={() => void attempt(() => runAgain([letter]))}>
                    Rerun
                  </button>{" "}
                  <button class="small" onClick={() => void attempt(() => remove([letter]))}>
                    Remove
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {data && items.length === 0 && (
        <Empty>
          {type
            ? `No dead letter has the error ${type}.`
            : "No dead letters: every queued job ended well."}
        </Empty>
      )}
      <nav class="pages" aria-label="Pages">
        {query.get("before") && (
          <a href={addressOf("dead-letters", { error_type: type })}>Newest</a>
        )}
        {data?.has_more && (
          <a
            href={addressOf("dead-letters", {
              error_type: type,
              before: String(items.at(-1)?.id),
            })}
          >
            Older
          </a>
        )}
      </nav>
    </>
  );
}
