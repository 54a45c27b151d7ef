import { addressOf } from "../model/address.ts";
import { formatDuration } from "../model/numbers.ts";
import {
  Age,
  announce,
  attempt,
  Empty,
  ExecutionLink,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  Status,
} from "../parts/elements.tsx";
import { actions, Fresh, number, Pages, Table, Whose, whose, wide } from "../parts/table.tsx";
import { clock } from "../service/client.ts";
import { useList } from "../service/feed.ts";
import { type Delivery, deliveryFilters, listDeliveries, resend } from "../service/records.ts";

const statuses: Delivery["status"][] = ["pending", "delivered", "failed"];

/** Calls to receivers: the outcome of each, and a button that sends it again. */
export function Webhooks({ query }: { query: URLSearchParams }) {
  const list = useList("webhooks", query, listDeliveries, ({ id }) => id);
  const { data, problem, refresh } = list;
  const filters = Object.fromEntries(
    deliveryFilters.map((name) => [name, query.get(name) ?? undefined]),
  );
  const isFiltered = deliveryFilters.some((name) => query.get(name));
  const again = async ({ id }: Delivery): Promise<void> => {
    await resend(id);
    announce("The delivery is sent again now");
    refresh();
  };
  const items = data?.items ?? [];
  return (
    <>
      <Heading title="Webhooks">
        <Fresh list={list} />
      </Heading>
      {(items.length > 0 || isFiltered) && (
        <nav class="kinds" aria-label="States">
          {[undefined, ...statuses].map((status) => (
            <a
              key={status ?? "all"}
              href={addressOf("webhooks", { ...filters, status })}
              aria-current={filters["status"] === status ? "page" : undefined}
            >
              {status ?? "all"}
            </a>
          ))}
          {filters["endpoint"] && (
            <a href={addressOf("webhooks", { ...filters, endpoint: undefined })}>
              to {filters["endpoint"]} ✕
            </a>
          )}
          {filters["job_id"] && (
            <a href={addressOf("webhooks", { ...filters, job_id: undefined })}>of one job ✕</a>
          )}
        </nav>
      )}
      <Problem text={problem} />
      {items.length > 0 && (
        <Table
          columns={[
            "Status",
            "Event",
            "Execution",
            ...whose(),
            "Receiver",
            number("Calls"),
            "Made",
            wide("Last answer"),
            actions,
          ]}
        >
          {items.map((delivery) => (
            <DeliveryRow
              key={delivery.id}
              delivery={delivery}
              onResend={() => void attempt(() => again(delivery))}
            />
          ))}
        </Table>
      )}
      {data && items.length === 0 && (isFiltered ? <NoMatch /> : <HowTo />)}
      <Loading feed={list} />
      <Pages
        view="webhooks"
        filters={filters}
        isFirst={!query.get("before")}
        before={data?.has_more ? String(items.at(-1)?.id) : undefined}
      />
    </>
  );
}

function DeliveryRow({ delivery, onResend }: { delivery: Delivery; onResend: () => void }) {
  const { status, type, job_id, endpoint, callback_url, attempts, created_at } = delivery;
  return (
    <tr>
      <td>
        <Status status={status} tone={attempts > 0 ? "late" : undefined} />
      </td>
      <td>{type.replace("execution.", "")}</td>
      <td>
        <ExecutionLink id={job_id} />
      </td>
      <Whose of={delivery} />
      <td title={callback_url ?? undefined}>
        {endpoint ? (
          <a href={addressOf("webhooks", { endpoint })}>{endpoint}</a>
        ) : (
          hostOf(callback_url)
        )}
      </td>
      <td class="number" data-name="calls">
        {attempts}
      </td>
      <td class="quiet number-left">
        <Age at={created_at} />
      </td>
      <td class="wide quiet" title={answerOf(delivery)}>
        {answerOf(delivery)}
      </td>
      <td class="row-actions">
        <ScopedButton
          scope="run"
          class="small"
          aria-label={`Send delivery ${delivery.id} again`}
          onClick={onResend}
        >
          Resend
        </ScopedButton>
      </td>
    </tr>
  );
}

/** Of the receiver that the job itself named. */
const hostOf = (url: string | null): string => (url === null ? "–" : new URL(url).host);

function answerOf({ last_status_code, last_error, callback_url, next_attempt_at }: Delivery) {
  const next = next_attempt_at === null ? undefined : Date.parse(next_attempt_at) - clock.value;
  // The error says the status of the answer, too.
  const isTold = last_error?.includes(String(last_status_code));
  const parts = [
    last_status_code === null || isTold ? undefined : `HTTP ${last_status_code}`,
    last_error ?? undefined,
    next === undefined ? undefined : next <= 0 ? "due now" : `again in ${formatDuration(next)}`,
    callback_url ?? undefined,
  ];
  return parts.filter((part) => part !== undefined).join(", ");
}

const NoMatch = () => (
  <Empty>
    No delivery matches. <a href={addressOf("webhooks")}>Show all</a>
  </Empty>
);

const configuration = `[webhook_endpoints.orders]
url = "https://hooks.example/airlock"
secrets = ["whsec_…"]`;

/** Without a receiver there are no deliveries. */
function HowTo() {
  return (
    <div class="how-to">
      <p>
        No webhook was sent in the last 7 days. Airlock calls your service when an execution ends,
        once the configuration names it:
      </p>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard */}
      <pre class="json" tabIndex={0} aria-label="Configuration">
        {configuration}
      </pre>
      <p>
        Make a secret with <code>echo "whsec_$(openssl rand -base64 32)"</code>. A single job names
        its own receiver with <code>callback_url</code>, if <code>webhook_callbacks</code> allows
        its host. docs/guides/webhooks.md has a receiver in 20 lines.
      </p>
    </div>
  );
}
