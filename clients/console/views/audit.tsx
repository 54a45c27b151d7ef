import { auditActions } from "../../../shared/wire/client/audit-actions.ts";
import { addressOf } from "../model/address.ts";
import { Age, Empty, Heading, Loading, Problem } from "../parts/common.tsx";
import { Fresh, Pages } from "../parts/pages.tsx";
import { Table, wide } from "../parts/table.tsx";
import { useList } from "../service/list.ts";
import { go } from "../service/location.ts";
import { type AuditEntry, listAudit } from "../service/tenants.ts";

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
