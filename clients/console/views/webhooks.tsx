import type { WebhookDelivery } from "../../typescript/src/generated.ts";
import { addressOf } from "../model/address.ts";
import { formatDuration } from "../model/numbers.ts";
import { announce, ExecutionLink, ScopedButton, Status, Text } from "../parts/elements.tsx";
import { Kinds, ListView, isGiven } from "../parts/list.tsx";
import { actions, age, type Column, number, plain, whoseIfAll, wide } from "../parts/table.tsx";
import { api, clock } from "../service/client.ts";
import { deliveries, filtersOf } from "../service/records.ts";

const statuses: WebhookDelivery["status"][] = ["pending", "delivered", "failed"];

/** Calls to receivers: the outcome of each, and a button that sends it again. */
export function Webhooks({ query }: { query: URLSearchParams }) {
  const filters = filtersOf(deliveries, query);
  const [endpoint] = filters.endpoint;
  return (
    <ListView
      title="Webhooks"
      view="webhooks"
      query={query}
      source={deliveries}
      columns={columns()}
      filters={({ data }) =>
        (data?.items.length || isGiven(filters)) && (
          <Kinds
            label="States"
            kinds={[undefined, ...statuses].map((status) => ({
              title: status ?? "all",
              address: addressOf("webhooks", { ...filters, status }),
              isHere: filters.status[0] === status,
            }))}
          >
            {endpoint && (
              <a href={addressOf("webhooks", { ...filters, endpoint: undefined })}>
                to {endpoint} ✕
              </a>
            )}
            {filters.job_id[0] && (
              <a href={addressOf("webhooks", { ...filters, job_id: undefined })}>of one job ✕</a>
            )}
          </Kinds>
        )
      }
      noMatch="No delivery matches."
      empty={<HowTo />}
    />
  );
}

const columns = (): Column<WebhookDelivery>[] => [
  plain("Status", ({ status, attempts }) => (
    <Status status={status} tone={attempts > 0 ? "late" : undefined} />
  )),
  plain("Event", ({ type }) => type.replace("execution.", "")),
  plain("Execution", ({ job_id }) => <ExecutionLink id={job_id} />),
  ...whoseIfAll(),
  plain(
    "Receiver",
    ({ endpoint, callback_url }) =>
      endpoint ? (
        <a href={addressOf("webhooks", { endpoint })}>{endpoint}</a>
      ) : (
        hostOf(callback_url)
      ),
    { hint: ({ callback_url }) => callback_url ?? undefined },
  ),
  number("Calls", ({ attempts }) => attempts),
  age("Made", ({ created_at }) => created_at),
  wide("Last answer", answerOf, { class: "quiet", hint: answerOf }),
  actions(({ id }, refresh) => (
    <ScopedButton
      scope="run"
      class="small"
      aria-label={`Send delivery ${id} again`}
      work={async () => {
        await api.resendWebhookDelivery({ id });
        announce("The delivery is sent again now");
        refresh();
      }}
    >
      Resend
    </ScopedButton>
  )),
];

/** Of the receiver that the job itself named. */
const hostOf = (url: string | null): string => (url === null ? "–" : new URL(url).host);

function answerOf({
  last_status_code,
  last_error,
  callback_url,
  next_attempt_at,
}: WebhookDelivery) {
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
      <Text label="Configuration" text={configuration} />
      <p>
        Make a secret with <code>echo "whsec_$(openssl rand -base64 32)"</code>. A single job names
        its own receiver with <code>callback_url</code>, if <code>webhook_callbacks</code> allows
        its host. docs/guides/webhooks.md has a receiver in 20 lines.
      </p>
    </div>
  );
}
