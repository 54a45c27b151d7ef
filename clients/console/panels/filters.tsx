import { useEffect, useRef } from "preact/hooks";
import { addressOf, executionAddress, type Parameters } from "../model/address.ts";
import { formatTime } from "../model/time.ts";
import { announce } from "../parts/announce.ts";
import { shortId } from "../parts/common.tsx";
import { serviceNow } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { go } from "../service/location.ts";
import { filtersOf, listJobTypes } from "../service/records.ts";

const statuses = ["queued", "running", "succeeded", "failed", "timeout", "oom", "cancelled"];
const periods: [string, string, number][] = [
  ["", "any time", 0],
  ["1h", "last hour", 3_600_000],
  ["24h", "last 24 hours", 86_400_000],
  ["7d", "last 7 days", 604_800_000],
];
const isId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

const minuteOf = (iso: string): string => formatTime(iso).slice(0, -3);

/** Filters of the list. Each change is a new address. */
export function Filters({ query }: { query: URLSearchParams }) {
  const types = useFeed("names of job types", listJobTypes, () => true);
  const names = types.value.data?.map(({ name }) => name) ?? [];
  const now = filtersOf(query);
  const change = (changes: Parameters): void =>
    go(addressOf("executions", { ...now, ...changes }), { stay: true });
  const chosenType = now["job_type"]?.[0] ?? "";
  const since = now["created_after"]?.[0];
  const [wanted, ...alsoWanted] = now["metadata"] ?? [];
  const field = useRef<HTMLInputElement>(null);
  // What is being typed stays when the page renders again.
  useEffect(() => {
    if (field.current) field.current.value = wanted ?? "";
  }, [wanted]);
  /** Filters without a field of their own: they can only be taken away. */
  const others = [
    ...alsoWanted.map((value) => ({
      words: `metadata: ${value}`,
      without: { metadata: now["metadata"]!.filter((other) => other !== value) },
    })),
    ...now["created_before"]!.map((value) => ({
      words: `before ${minuteOf(value)}`,
      without: { created_before: undefined },
    })),
    ...now["parent_execution_id"]!.map((id) => ({
      words: `made from ${shortId(id)}`,
      without: { parent_execution_id: undefined },
    })),
    ...now["batch_id"]!.map((id) => ({
      words: `batch ${shortId(id)}`,
      without: { batch_id: undefined },
    })),
  ];

  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget).get("wanted");
        const text = typeof given === "string" ? given.trim() : "";
        if (isId.test(text)) return go(executionAddress(text));
        const isPair = text === "" || /^[^:]+:/.test(text);
        if (isPair) return change({ metadata: [text, ...alsoWanted] });
        announce("Type a whole id, or what the metadata says as key:value.");
      }}
    >
      <label>
        Status
        <select
          value={now["status"]?.[0] ?? ""}
          onChange={(event) => change({ status: event.currentTarget.value })}
        >
          <option value="">any</option>
          {statuses.map((status) => (
            <option key={status} value={status}>
              {status}
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
          value={since ? "given" : ""}
          onChange={(event) => {
            const period = periods.find(([value]) => value === event.currentTarget.value);
            const from = period?.[2] ? new Date(serviceNow() - period[2]).toISOString() : undefined;
            change({ created_after: from });
          }}
        >
          {since && <option value="given">since {minuteOf(since)}</option>}
          {periods.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <label class="grow">
        Id or metadata
        <input
          ref={field}
          name="wanted"
          type="search"
          placeholder="an id, or key:value"
          title="Ctrl+K"
          aria-keyshortcuts="Control+K"
          spellcheck={false}
          onInput={(event) => {
            if (event.currentTarget.value === "" && wanted) change({ metadata: alsoWanted });
          }}
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
