import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addressOf, executionAddress } from "../model/address.ts";
import { go } from "../service/location.ts";
import { filterNames, listJobTypes } from "../service/records.ts";
import { attempt } from "../parts/announce.ts";

const statuses = ["queued", "running", "succeeded", "failed", "timeout", "oom", "cancelled"];
const periods: [string, string, number][] = [
  ["", "any time", 0],
  ["1h", "last hour", 3_600_000],
  ["24h", "last 24 hours", 86_400_000],
  ["7d", "last 7 days", 604_800_000],
];
const isId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Filters of the list. Each change is a new address. */
export function Filters({ query }: { query: URLSearchParams }) {
  const names = useSignal<string[]>([]);
  useEffect(() => {
    void attempt(async () => (names.value = (await listJobTypes()).map(({ name }) => name)));
  }, []);
  const now = Object.fromEntries(filterNames.map((name) => [name, query.get(name) ?? undefined]));
  const change = (changes: Record<string, string | undefined>): void =>
    go(addressOf("executions", { ...now, ...changes }));
  const chosenType = now["job_type"] ?? "";
  const others = filterNames.filter(
    (name) => now[name] && !["status", "job_type", "metadata", "created_after"].includes(name),
  );

  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget).get("wanted");
        const wanted = typeof given === "string" ? given.trim() : "";
        if (isId.test(wanted)) go(executionAddress(wanted));
        else change({ metadata: wanted });
      }}
    >
      <label>
        Status
        <select
          value={now["status"] ?? ""}
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
          {[...new Set([...names.value, ...(chosenType ? [chosenType] : [])])].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Submitted
        <select
          value={now["created_after"] ? "given" : ""}
          onChange={(event) => {
            const period = periods.find(([value]) => value === event.currentTarget.value);
            const since = period?.[2] ? new Date(Date.now() - period[2]).toISOString() : undefined;
            change({ created_after: since });
          }}
        >
          {now["created_after"] && (
            <option value="given">since {new Date(now["created_after"]).toLocaleString()}</option>
          )}
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
          name="wanted"
          type="search"
          defaultValue={now["metadata"] ?? ""}
          placeholder="an id, or key:value"
          title="Ctrl+K"
          aria-keyshortcuts="Control+K"
          spellcheck={false}
          onInput={(event) => {
            if (event.currentTarget.value === "" && now["metadata"])
              change({ metadata: undefined });
          }}
        />
      </label>
      {others.map((name) => (
        <button
          key={name}
          type="button"
          class="small"
          onClick={() => change({ [name]: undefined })}
        >
          {name.replaceAll("_", " ")}: {now[name]} ✕
        </button>
      ))}
    </form>
  );
}
