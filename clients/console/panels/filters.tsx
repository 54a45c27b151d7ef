import { useRef } from "preact/hooks";
import { addressOf, executionAddress, type Parameters } from "../model/address.ts";
import { formatTime } from "../model/time.ts";
import { announce, attempt } from "../parts/announce.ts";
import { shortId } from "../parts/common.tsx";
import { serviceNow } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { go } from "../service/location.ts";
import { filtersOf, findByEnd, listJobTypes } from "../service/records.ts";

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
export function Filters({ query }: { query: URLSearchParams }) {
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
