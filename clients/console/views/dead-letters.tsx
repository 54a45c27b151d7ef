import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import type { BulkJob } from "../parts/bulk.tsx";
import { Empty, ExecutionLink, ScopedButton, shortId } from "../parts/elements.tsx";
import { Kinds, ListView } from "../parts/list.tsx";
import { actions, age, type Column, plain, whoseIfAll, wide } from "../parts/table.tsx";
import { api } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { type DeadLetter, deadLetters, rerun } from "../service/records.ts";

interface Done {
  letter: DeadLetter;
  /** The answers. */
  state: string;
}

type Act = (letter: DeadLetter) => Promise<unknown>;

const remove = ({ id }: DeadLetter): Promise<unknown> => api.deleteDeadLetter({ id });

async function runAgain(letter: DeadLetter, run?: string): Promise<void> {
  await rerun(letter.job_id, run && `${run} ${letter.id}`);
  await remove(letter);
}

const bulk: [string, BulkJob<DeadLetter>][] = [
  [
    "Rerun all",
    {
      title: "Run again",
      thing: "dead letter",
      note: "Each is queued as a new job and removed from the dead letters. If the queue is full, the rest waits until there is room.",
      act: runAgain,
    },
  ],
  [
    "Remove all",
    {
      title: "Remove",
      thing: "dead letter",
      note: "The records of their executions are kept.",
      isDangerous: true,
      act: remove,
    },
  ],
];

/** Asynchronous jobs that failed, by error type: read, run again, remove. */
export function DeadLetters({ query }: { query: URLSearchParams }) {
  const stats = useFeed("dead letter stats", api.getDeadLetterStats);
  const { total = 0, by_error_type: byType = {} } = stats.value.data ?? {};
  const type = query.get("error_type") ?? undefined;
  const counts = Object.entries(byType).toSorted(([, a], [, b]) => b - a);

  // A removed letter stays in its place, so that a second click does not hit another one.
  const done = useSignal<Map<number, Done>>(new Map());
  useEffect(() => void (done.value = new Map()), [String(query)]);
  const one = async (act: Act, letter: DeadLetter, words: string): Promise<void> => {
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
  const button = (letter: DeadLetter, name: string, act: Act, words: string) => (
    <ScopedButton
      scope="run"
      class="small"
      aria-label={`${name} ${shortId(letter.job_id)}`}
      aria-disabled={done.value.has(letter.id)}
      work={() => one(act, letter, words)}
    >
      {name}
    </ScopedButton>
  );

  const columns: Column<DeadLetter>[] = [
    plain("Error", ({ error_type }) => error_type, { class: "strong" }),
    plain("Execution", ({ job_id }) => <ExecutionLink id={job_id} />),
    ...whoseIfAll(),
    plain("Job type", ({ job_data }) => job_data.job_type),
    age("Submitted", ({ created_at }) => created_at),
    wide("Message", ({ error_message }) => <span class="error-line">{error_message}</span>, {
      class: "quiet",
      hint: ({ error_message }) => error_message,
    }),
    actions((letter) => (
      <>
        <span role="status">{done.value.get(letter.id)?.state}</span>{" "}
        {button(letter, "Rerun", runAgain, "queued again")}{" "}
        {button(letter, "Remove", remove, "removed")}
      </>
    )),
  ];
  return (
    <ListView
      title="Dead letters"
      view="dead-letters"
      query={query}
      source={deadLetters}
      columns={columns}
      opensRows
      bulk={bulk}
      onBulkEnd={() => {
        done.value = new Map();
        stats.value.refresh();
      }}
      filters={
        counts.length > 0 && (
          <Kinds
            label="Error types"
            kinds={[[undefined, total] as const, ...counts].map(([name, count]) => ({
              title: name ?? "all",
              address: addressOf("dead-letters", { error_type: name }),
              isHere: type === name,
              count,
            }))}
          />
        )
      }
      arrange={(items) =>
        [
          ...items.filter(({ id }) => !done.value.has(id)),
          ...[...done.value.values()].map(({ letter }) => letter),
        ].toSorted((a, b) => b.id - a.id)
      }
      empty={
        <Empty>
          {type
            ? `No dead letter has the error ${type}.`
            : "No dead letters. An asynchronous job that fails is kept here, to be read and run again."}
        </Empty>
      }
    />
  );
}
