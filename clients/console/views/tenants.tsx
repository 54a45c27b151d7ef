import { useSignal } from "@preact/signals";
import { auditActions } from "../../../shared/wire/limits.ts";
import { addressOf } from "../model/address.ts";
import { formatBytes, formatCount, formatDuration, parseSize, sizeText } from "../model/numbers.ts";
import { Age, announce, Dialog, Empty, Heading, Loading, Problem } from "../parts/elements.tsx";
import { actions, Fresh, number, Pages, Table, wide } from "../parts/table.tsx";
import { hasScope, messageOf, tenant } from "../service/client.ts";
import { useFeed, useList } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  type AuditEntry,
  getUsage,
  listAudit,
  listTenants,
  setLimits,
  type Tenant,
  type TenantLimits,
  type Usage,
} from "../service/records.ts";
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

const fields: { name: keyof TenantLimits; title: string; hint?: string }[] = [
  { name: "max_queued", title: "Jobs that wait" },
  { name: "max_running", title: "Jobs that run; more wait" },
  { name: "max_stored_bytes", title: "Stored bytes", hint: "such as 10 GiB" },
  { name: "max_cpu_s_day", title: "Seconds of CPU time in a day (UTC)" },
  { name: "max_requests", title: "Requests in the window of the rate limit" },
];

interface LimitsProps {
  tenant: Tenant;
  onSaved: () => void;
  onClose: () => void;
}

/** Sets what a tenant may use. */
function Limits({ tenant, onSaved, onClose }: LimitsProps) {
  const problem = useSignal("");
  const save = async (form: HTMLFormElement): Promise<void> => {
    const given = new FormData(form);
    const limits: Record<string, number | null> = {};
    for (const { name } of fields) {
      const text = (given.get(name) as string).trim();
      const value = name === "max_stored_bytes" ? parseSize(text) : Number(text);
      if (text !== "" && value === undefined) {
        problem.value = `"${text}" is no size: write such as 10 GiB, 500 MB or a number of bytes.`;
        return;
      }
      limits[name] = text === "" ? null : value!;
    }
    try {
      await setLimits(tenant.name, limits);
      announce(`The limits of ${tenant.name} are set`);
      onSaved();
      onClose();
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  return (
    <Dialog label={`Limits of ${tenant.name}`} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save(event.currentTarget);
        }}
      >
        <h2>Limits of {tenant.name}</h2>
        {fields.map(({ name, title, hint }) => (
          <label key={name}>
            {title}
            {name === "max_stored_bytes" ? (
              <input name={name} defaultValue={shown(tenant.limits[name])} placeholder={hint} />
            ) : (
              <input
                name={name}
                type="number"
                min={0}
                defaultValue={String(tenant.limits[name] ?? "")}
              />
            )}
          </label>
        ))}
        <p class="quiet">An empty field is no limit.</p>
        <Problem text={problem.value} />
        <p class="actions">
          <button class="primary">Save</button>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </p>
      </form>
    </Dialog>
  );
}

const shown = (bytes: number | null | undefined): string =>
  bytes === null || bytes === undefined ? "" : sizeText(bytes);

/** What was changed, by whom: nobody can change that. */
export function Audit({ query }: { query: URLSearchParams }) {
  const list = useList("audit", query, listAudit, ({ id }) => id);
  const { data, problem } = list;
  const action = query.get("action") ?? undefined;
  const tenant = query.get("tenant") ?? undefined;
  const change = (changes: object): void =>
    go(addressOf("audit", { action, tenant, ...changes }), { stay: true });
  const items = data?.items ?? [];
  return (
    <>
      <Heading title="Audit">
        <Fresh list={list} />
      </Heading>
      {data && (
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <label>
            Action
            <select
              value={action ?? ""}
              onChange={(event) => change({ action: event.currentTarget.value })}
            >
              <option value="">any</option>
              {auditActions.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
          <label>
            Tenant
            <input
              type="search"
              value={tenant ?? ""}
              placeholder="any"
              spellcheck={false}
              onChange={(event) => change({ tenant: event.currentTarget.value.trim() })}
            />
          </label>
        </form>
      )}
      <Problem text={problem} />
      <Loading feed={list} />
      {items.length > 0 && (
        <Table columns={["When", "Action", "By", "Tenant", "Target", wide("Details")]}>
          {items.map((entry) => (
            <tr key={entry.id}>
              <td class="quiet number-left">
                <Age at={entry.at} />
              </td>
              <td class="strong">{entry.action}</td>
              <td title={entry.key_id ?? undefined}>{entry.key_name}</td>
              <td data-name="tenant">{entry.tenant}</td>
              <td class="id" title={entry.target}>
                {shorten(entry.target)}
              </td>
              <td class="wide quiet" title={detailsOf(entry)}>
                {detailsOf(entry)}
              </td>
            </tr>
          ))}
        </Table>
      )}
      {data && items.length === 0 && (
        <Empty>
          {action || tenant ? (
            <>
              No entry matches. <a href={addressOf("audit")}>Show all</a>
            </>
          ) : (
            "Nothing was changed yet. Changes of keys, limits, hosts and agents, builds and removals are kept here."
          )}
        </Empty>
      )}
      <Pages
        view="audit"
        filters={{ action, tenant }}
        isFirst={!query.get("before")}
        before={data?.has_more ? String(items.at(-1)?.id) : undefined}
      />
    </>
  );
}

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
