import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { formatCount } from "../model/numbers.ts";
import { Bulk, type BulkJob } from "../parts/bulk.tsx";
import {
  Age,
  attempt,
  Empty,
  ExecutionLink,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  shortId,
} from "../parts/elements.tsx";
import { actions, Fresh, Pages, Table, Whose, whose, wide } from "../parts/table.tsx";
import { useFeed, useList } from "../service/feed.ts";
import {
  allDeadLetters,
  type DeadLetterPage,
  getDeadLetterStats,
  listDeadLetters,
  removeDeadLetter,
  rerun,
} from "../service/records.ts";

type Letter = DeadLetterPage["items"][number];

interface Done {
  letter: Letter;
  /** The answers. */
  state: string;
}

const remove = ({ id }: Letter): Promise<unknown> => removeDeadLetter(id);

async function runAgain(letter: Letter, run?: string): Promise<void> {
  await rerun(letter.job_id, run && `${run} ${letter.id}`);
  await remove(letter);
}

const rerunOf = (query: URLSearchParams): BulkJob<Letter> => ({
  title: "Run again",
  thing: "dead letter",
  note: "Each is queued as a new job and removed from the dead letters. If the queue is full, the rest waits until there is room.",
  collect: (signal) => allDeadLetters(query, signal),
  act: runAgain,
});

const removalOf = (query: URLSearchParams): BulkJob<Letter> => ({
  title: "Remove",
  thing: "dead letter",
  note: "The records of their executions are kept.",
  isDangerous: true,
  collect: (signal) => allDeadLetters(query, signal),
  act: remove,
});

/** Asynchronous jobs that failed, by error type: read, run again, remove. */
export function DeadLetters({ query }: { query: URLSearchParams }) {
  const stats = useFeed("dead letter stats", getDeadLetterStats);
  const list = useList("dead letters", query, listDeadLetters, ({ id }) => id);
  const bulk = useSignal<BulkJob<Letter> | undefined>(undefined);
  const { data, problem, refresh } = list;
  const type = query.get("error_type") ?? undefined;
  const counts = Object.entries(stats.value.data?.by_error_type ?? {}).toSorted(
    ([, a], [, b]) => b - a,
  );

  const closeBulk = (): void => {
    bulk.value = undefined;
    done.value = new Map();
    refresh();
    stats.value.refresh();
  };
  // A removed letter stays in its place, so that a second click does not hit another one.
  const done = useSignal<Map<number, Done>>(new Map());
  useEffect(() => void (done.value = new Map()), [String(query)]);
  const one = async (act: (letter: Letter) => Promise<unknown>, letter: Letter, words: string) => {
    const mark = (state: string): void => {
      done.value = new Map(done.value).set(letter.id, { letter, state });
    };
    if (done.value.has(letter.id)) return;
    mark("…");
    try {
      await act(letter);
      mark(words);
      stats.value.refresh();
    } catch (error) {
      done.value = new Map([...done.value].filter(([id]) => id !== letter.id));
      throw error;
    }
  };

  const left = data?.items.filter(({ id }) => !done.value.has(id)) ?? [];
  const items = [...left, ...[...done.value.values()].map(({ letter }) => letter)].toSorted(
    (a, b) => b.id - a.id,
  );
  return (
    <>
      <Heading title="Dead letters">
        <Fresh list={list} />
        {items.length > 0 && (
          <>
            <ScopedButton scope="run" onClick={() => (bulk.value = rerunOf(query))}>
              Rerun all
            </ScopedButton>
            <ScopedButton
              scope="run"
              class="danger"
              onClick={() => (bulk.value = removalOf(query))}
            >
              Remove all
            </ScopedButton>
          </>
        )}
      </Heading>
      {bulk.value && <Bulk job={bulk.value} onClose={closeBulk} />}
      {counts.length > 0 && (
        <nav class="kinds" aria-label="Error types">
          <a href={addressOf("dead-letters")} aria-current={type ? undefined : "page"}>
            all <span class="number">{formatCount(stats.value.data?.total ?? 0)}</span>
          </a>
          {counts.map(([name, count]) => (
            <a
              key={name}
              href={addressOf("dead-letters", { error_type: name })}
              aria-current={type === name ? "page" : undefined}
            >
              {name} <span class="number">{formatCount(count)}</span>
            </a>
          ))}
        </nav>
      )}
      <Problem text={problem} />
      <Loading feed={list} />
      {items.length > 0 && (
        <Table
          opensRows
          columns={[
            "Error",
            "Execution",
            ...whose(),
            "Job type",
            "Submitted",
            wide("Message"),
            actions,
          ]}
        >
          {items.map((letter) => (
            <tr key={letter.id}>
              <td class="strong">{letter.error_type}</td>
              <td>
                <ExecutionLink id={letter.job_id} />
              </td>
              <Whose of={letter} />
              <td>{letter.job_data.job_type}</td>
              <td class="quiet number-left">
                <Age at={letter.created_at} />
              </td>
              <td class="wide quiet" title={letter.error_message}>
                <span class="error-line">{letter.error_message}</span>
              </td>
              <td class="row-actions">
                <span role="status">{done.value.get(letter.id)?.state}</span>{" "}
                <ScopedButton
                  scope="run"
                  class="small"
                  aria-label={`Rerun ${shortId(letter.job_id)}`}
                  aria-disabled={done.value.has(letter.id)}
                  onClick={() => void attempt(() => one(runAgain, letter, "queued again"))}
                >
                  Rerun
                </ScopedButton>{" "}
                <ScopedButton
                  scope="run"
                  class="small"
                  aria-label={`Remove ${shortId(letter.job_id)}`}
                  aria-disabled={done.value.has(letter.id)}
                  onClick={() => void attempt(() => one(remove, letter, "removed"))}
                >
                  Remove
                </ScopedButton>
              </td>
            </tr>
          ))}
        </Table>
      )}
      {data && items.length === 0 && (
        <Empty>
          {type
            ? `No dead letter has the error ${type}.`
            : "No dead letters. An asynchronous job that fails is kept here, to be read and run again."}
        </Empty>
      )}
      <Pages
        view="dead-letters"
        filters={{ error_type: type }}
        isFirst={!query.get("before")}
        before={data?.has_more ? String(items.at(-1)?.id) : undefined}
      />
    </>
  );
}
