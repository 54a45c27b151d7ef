import type { Tenant, TenantLimits, Usage } from "../../typescript/src/generated.ts";
import { auditActions } from "../../../shared/wire/limits.ts";
import { addressOf } from "../model/address.ts";
import { formatBytes, formatCount, formatDuration, parseSize, sizeText } from "../model/numbers.ts";
import {
  announce,
  closeDialog,
  Empty,
  FormDialog,
  Heading,
  Loading,
  openDialog,
  Problem,
  Select,
} from "../parts/elements.tsx";
import { ListView } from "../parts/list.tsx";
import { actions, age, type Column, named, number, plain, Table, wide } from "../parts/table.tsx";
import { api, hasScope, tenant } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { go } from "../service/location.ts";
import { auditEntries, type AuditEntry } from "../service/records.ts";
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
  const feed = useFeed("usage", api.getUsage);
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
  const feed = useFeed("tenants", api.listTenants);
  const { data, problem, refresh } = feed.value;
  return (
    <>
      <h2>All tenants</h2>
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {data && (
        <Table
          columns={tenantColumns}
          items={data.tenants}
          idOf={({ name }) => name}
          refresh={refresh}
        />
      )}
    </>
  );
}

const usageColumns = ["Waiting", "Running", "Stored", "CPU time today"].map((title, at) =>
  number<Tenant>(title, (one) => {
    const { used, limit } = rowsOf(one)[at]!;
    return (
      <>
        {used}
        {limit !== undefined && <span class="quiet"> of {limit}</span>}
      </>
    );
  }),
);

const tenantColumns: Column<Tenant>[] = [
  plain("Tenant", ({ name }) => name, { class: "strong" }),
  ...usageColumns,
  number("Requests", ({ limits: { max_requests: most } }) =>
    most === null ? "–" : `at most ${formatCount(most ?? 0)}`,
  ),
  actions((one, refresh) => (
    <button
      class="small"
      aria-label={`Limits of ${one.name}`}
      onClick={() => openDialog(<Limits tenant={one} onSaved={refresh} />)}
    >
      Limits
    </button>
  )),
];

const text = (value: number | null | undefined, words: (value: number) => string) =>
  value === null || value === undefined ? undefined : words(value);

const seconds = (value: number): string => formatDuration(value * 1000);

const fields: { name: keyof TenantLimits; title: string; hint?: string }[] = [
  { name: "max_queued", title: "Jobs that wait" },
  { name: "max_running", title: "Jobs that run; more wait" },
  { name: "max_stored_bytes", title: "Stored bytes", hint: "such as 10 GiB" },
  { name: "max_cpu_s_day", title: "Seconds of CPU time in a day (UTC)" },
  { name: "max_requests", title: "Requests in the window of the rate limit" },
];

/** Sets what a tenant may use. */
function Limits({
  tenant: { name: of, limits },
  onSaved,
}: {
  tenant: Tenant;
  onSaved: () => void;
}) {
  const save = async (given: FormData): Promise<void> => {
    const tenantLimits: Record<string, number | null> = {};
    for (const { name } of fields) {
      const text = (given.get(name) as string).trim();
      const value = name === "max_stored_bytes" ? parseSize(text) : Number(text);
      if (text !== "" && value === undefined) {
        throw new Error(`"${text}" is no size: write such as 10 GiB, 500 MB or a number of bytes.`);
      }
      tenantLimits[name] = text === "" ? null : value!;
    }
    await api.setTenantLimits({ name: of, tenantLimits });
    announce(`The limits of ${of} are set`);
    onSaved();
    closeDialog();
  };
  return (
    <FormDialog title={`Limits of ${of}`} action="Save" work={save}>
      {fields.map(({ name, title, hint }) => (
        <label key={name}>
          {title}
          {name === "max_stored_bytes" ? (
            <input name={name} defaultValue={shown(limits[name])} placeholder={hint} />
          ) : (
            <input name={name} type="number" min={0} defaultValue={String(limits[name] ?? "")} />
          )}
        </label>
      ))}
      <p class="quiet">An empty field is no limit.</p>
    </FormDialog>
  );
}

const shown = (bytes: number | null | undefined): string =>
  bytes === null || bytes === undefined ? "" : sizeText(bytes);

/** What was changed, by whom: nobody can change that. */
export function Audit({ query }: { query: URLSearchParams }) {
  const [action, whose] = ["action", "tenant"].map((name) => query.get(name) ?? "");
  const change = (changes: object): void =>
    go(addressOf("audit", { action, tenant: whose, ...changes }), { stay: true });
  return (
    <ListView
      title="Audit"
      view="audit"
      query={query}
      source={auditEntries}
      columns={auditColumns}
      filters={({ data }) =>
        data && (
          <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
            <Select
              label="Action"
              value={action!}
              options={[["", "any"], ...auditActions]}
              onChange={(next) => change({ action: next })}
            />
            <label>
              Tenant
              <input
                type="search"
                value={whose}
                placeholder="any"
                spellcheck={false}
                onChange={(event) => change({ tenant: event.currentTarget.value.trim() })}
              />
            </label>
          </form>
        )
      }
      noMatch="No entry matches."
      empty={
        <Empty>
          Nothing was changed yet. Changes of keys, limits, hosts and agents, builds and removals
          are kept here.
        </Empty>
      }
    />
  );
}

const auditColumns: Column<AuditEntry>[] = [
  age("When", ({ at }) => at),
  plain("Action", ({ action }) => action, { class: "strong" }),
  plain("By", ({ key_name }) => key_name, { hint: ({ key_id }) => key_id ?? undefined }),
  named("Tenant", ({ tenant }) => tenant),
  plain("Target", ({ target }) => shorten(target), { class: "id", hint: ({ target }) => target }),
  wide("Details", detailsOf, { class: "quiet", hint: detailsOf }),
];

const isId = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;
const shorten = (target: string): string => (isId.test(target) ? `…${target.slice(-8)}` : target);

/** "max_running: 4, from 10.0.0.7, correlation id c-1". */
function detailsOf({ detail, client_ip, correlation_id }: AuditEntry): string {
  const facts = Object.entries(detail ?? {})
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}: ${textOf(value)}`);
  if (client_ip) facts.push(`from ${client_ip}`);
  return [...facts, `correlation id ${correlation_id}`].join(", ");
}

const textOf = (value: unknown): string =>
  typeof value === "string" ? value : JSON.stringify(value).replaceAll(/[["\]]/g, "");
