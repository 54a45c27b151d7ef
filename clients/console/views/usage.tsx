import { useSignal } from "@preact/signals";
import { formatBytes, formatCount, formatDuration } from "../model/time.ts";
import { Heading, Loading, Problem } from "../parts/common.tsx";
import { actions, number, Table } from "../parts/table.tsx";
import { Limits } from "../panels/limits.tsx";
import { useFeed } from "../service/feed.ts";
import { tenant } from "../service/key.ts";
import { hasScope } from "../service/own-key.ts";
import { getUsage, listTenants, type Tenant, type Usage } from "../service/tenants.ts";
import { Figure } from "./queue.tsx";

/** What the tenant of the key uses, beside its limits; for operators also what every tenant uses. */
export function UsageView() {
  return (
    <>
      <Heading title="Usage" />
      {tenant.value !== "*" && <Own />}
      {hasScope("admin") && <Tenants />}
    </>
  );
}

function Own() {
  const feed = useFeed("usage", getUsage);
  const { data, problem } = feed.value;
  return (
    <>
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {data && (
        <>
          <h2>Tenant {data.tenant}</h2>
          <div class="columns">
            {rowsOf(data).map(({ name, used, limit }) => (
              <Figure
                key={name}
                name={limit === undefined ? `${name}, no limit` : name}
                value={used}
                of={limit}
              />
            ))}
          </div>
          {typeof data.limits.max_requests === "number" && (
            <p class="quiet">
              Its keys may send {formatCount(data.limits.max_requests)} requests together in the
              window of the rate limit.
            </p>
          )}
        </>
      )}
    </>
  );
}

/** What is used, how much, and the limit; of requests only the limit is known. */
function rowsOf({ usage, limits }: Pick<Usage, "usage" | "limits">) {
  return [
    {
      name: "waiting",
      used: formatCount(usage.queued),
      limit: text(limits.max_queued, formatCount),
    },
    {
      name: "running",
      used: formatCount(usage.running),
      limit: text(limits.max_running, formatCount),
    },
    {
      name: "stored",
      used: formatBytes(usage.stored_bytes),
      limit: text(limits.max_stored_bytes, formatBytes),
    },
    {
      name: "CPU time today",
      used: seconds(usage.cpu_s_today),
      limit: text(limits.max_cpu_s_day, seconds),
    },
  ];
}

function Tenants() {
  const feed = useFeed("tenants", listTenants);
  const { data, problem, refresh } = feed.value;
  const edited = useSignal<Tenant | undefined>(undefined);
  return (
    <>
      <h2>All tenants</h2>
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {edited.value && (
        <Limits
          tenant={edited.value}
          onSaved={refresh}
          onClose={() => (edited.value = undefined)}
        />
      )}
      {data && (
        <Table
          columns={[
            "Tenant",
            number("Waiting"),
            number("Running"),
            number("Stored"),
            number("CPU time today"),
            number("Requests"),
            actions,
          ]}
        >
          {data.map((one) => (
            <tr key={one.name}>
              <td class="strong">{one.name}</td>
              {rowsOf(one).map(({ name, used, limit }) => (
                <td key={name} class="number" data-name={name}>
                  {used}
                  {limit !== undefined && <span class="quiet"> of {limit}</span>}
                </td>
              ))}
              <td class="number" data-name="requests">
                {one.limits.max_requests === null
                  ? "–"
                  : `at most ${formatCount(one.limits.max_requests ?? 0)}`}
              </td>
              <td class="row-actions">
                <button
                  class="small"
                  aria-label={`Limits of ${one.name}`}
                  onClick={() => (edited.value = one)}
                >
                  Limits
                </button>
              </td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}

const text = (value: number | null | undefined, words: (value: number) => string) =>
  value === null || value === undefined ? undefined : words(value);

const seconds = (value: number): string => formatDuration(value * 1000);
