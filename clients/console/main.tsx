import { type ComponentType, render } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Health } from "../typescript/src/generated.ts";
import { addressOf, type Route } from "./model/address.ts";
import { formatCount, formatTime } from "./model/numbers.ts";
import {
  Announcement,
  Dialog,
  Heading,
  OpenDialog,
  openDialogs,
  Select,
  Status,
} from "./parts/elements.tsx";
import {
  api,
  chooseTenant,
  forgetKey,
  giveKey,
  hasScope,
  key,
  keyWanted,
  lostSince,
  ownKey,
  tenant,
} from "./service/client.ts";
import { useFeed } from "./service/feed.ts";
import { followKeys, followLinks, route } from "./service/location.ts";
import { DeadLetters } from "./views/dead-letters.tsx";
import { Execution } from "./views/execution.tsx";
import { Executions } from "./views/executions.tsx";
import { HealthView } from "./views/health.tsx";
import { JobTypes } from "./views/job-types.tsx";
import { Keys } from "./views/keys.tsx";
import { Playground } from "./views/playground.tsx";
import { Queue } from "./views/queue.tsx";
import { Sessions, SessionView } from "./views/sessions.tsx";
import { Audit, UsageView } from "./views/tenants.tsx";
import { Webhooks } from "./views/webhooks.tsx";

const views = [
  ["", "Playground"],
  ["executions", "Executions"],
  ["sessions", "Sessions"],
  ["queue", "Queue and agents"],
  ["job-types", "Job types"],
  ["dead-letters", "Dead letters"],
  ["webhooks", "Webhooks"],
  ["keys", "Keys"],
  ["usage", "Usage"],
  ["audit", "Audit"],
  ["health", "Health"],
] as const;
/** Shown to a key with the scope admin only. */
const ofAdmins: readonly string[] = ["keys", "audit"];
const ownKeyMs = 30_000;

function App() {
  const health = useFeed("health", api.getHealth);
  const own = useFeed("own key", api.getOwnKey, ownKeyMs).value.data;
  useLayoutEffect(() => void (ownKey.value = own), [own]);
  const isAdmin = hasScope("admin");
  const shown = views.filter(([view]) => isAdmin || !ofAdmins.includes(view));
  const places = useRef<HTMLUListElement>(null);
  // On a narrow screen the list of views is wider than the screen. `scrollIntoView` would also move the place from
  // which Tab goes on (seen in Chromium 150), past the link to the content.
  useEffect(() => {
    const list = places.current;
    const here = list?.querySelector<HTMLElement>("[aria-current]");
    if (!list || !here) return;
    const middle = here.offsetLeft - list.offsetLeft + here.offsetWidth / 2;
    list.scrollLeft = middle - list.clientWidth / 2;
  }, [route.value.view, isAdmin]);
  return (
    <>
      <a class="skip" href="#view" onClick={skip}>
        To the content
      </a>
      <div class="frame">
        <nav aria-label="Console">
          <a class="brand" href={addressOf("")}>
            Airlock
          </a>
          <ul ref={places}>
            {shown.map(([view, title]) => (
              <li key={view}>
                <a href={addressOf(view)} aria-current={isHere(view) ? "page" : undefined}>
                  {title}
                </a>
              </li>
            ))}
          </ul>
          {isAdmin && <TenantSwitch />}
          <ServiceState health={health.value.data} />
        </nav>
        <main id="view" tabIndex={-1}>
          {lostSince.value !== undefined && (
            <p class="lost" role="alert">
              The service has not answered since{" "}
              {formatTime(new Date(lostSince.value).toISOString())}. What you see is from before;
              the console keeps trying.
            </p>
          )}
          {tenant.value === "*" && (
            <p class="note">
              You see all tenants. To run or change something of one, choose it as the tenant.
            </p>
          )}
          <View />
        </main>
      </div>
      <OpenDialog />
      {openDialogs.value === 0 && <Announcement />}
      {keyWanted.value && <KeyDialog reason={keyWanted.value} />}
    </>
  );
}

function isHere(view: string): boolean {
  const shown = route.value.view;
  if (view === "") return shown === "playground";
  return shown === view || `${shown}s` === view;
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("view")?.focus();
}

function ServiceState({ health }: { health: Health | undefined }) {
  const state = lostSince.value === undefined ? health?.status : "no answer";
  return (
    <div class="service">
      {state && (
        <a href={addressOf("health")} title="To the health of the service">
          <Status status={state} />
        </a>
      )}
      {health && (
        <span class="quiet number">
          {formatCount(health.queue_stats.running)} running,{" "}
          {formatCount(health.queue_stats.pending)} waiting
        </span>
      )}
      <a class="quiet" href="/docs" target="_blank" rel="noreferrer">
        API{health && <span class="version"> {health.version}</span>}
      </a>
      {key.value !== "" && (
        <button class="small" onClick={forgetKey}>
          Forget the key
        </button>
      )}
    </div>
  );
}

const Nowhere = () => (
  <>
    <Heading title="No such page" />
    <p>
      The console has no page at this address. <a href={addressOf("")}>To the playground</a>
    </p>
  </>
);

const contents: Record<Route["view"], ComponentType<Pick<Route, "id" | "query">>> = {
  playground: Playground,
  executions: Executions,
  execution: Execution,
  sessions: Sessions,
  session: SessionView,
  queue: Queue,
  "job-types": JobTypes,
  "dead-letters": DeadLetters,
  webhooks: Webhooks,
  keys: Keys,
  usage: UsageView,
  audit: Audit,
  health: HealthView,
  nowhere: Nowhere,
};

function View() {
  const { view, id, query } = route.value;
  const Content = contents[view];
  return <Content key={id} id={id} query={query} />;
}

/** Asks for the API key. It cannot be closed without one: nothing can be shown. */
function KeyDialog({ reason }: { reason: "missing" | "wrong" }) {
  return (
    <Dialog label="API key" isHeld>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const given = new FormData(event.currentTarget).get("key");
          if (typeof given === "string" && given.trim() !== "") giveKey(given);
        }}
      >
        <h2>API key</h2>
        <p>
          {reason === "missing"
            ? "This service answers only with a key. Its operator makes one for you."
            : "The service does not accept this key."}
        </p>
        <label>
          Key
          <input
            name="key"
            type="password"
            autocomplete="off"
            required
            autofocus
            spellcheck={false}
          />
        </label>
        <p class="quiet">Only the open tabs of this console keep it.</p>
        <p class="actions">
          <button class="primary">Continue</button>
        </p>
      </form>
    </Dialog>
  );
}

const tenantsMs = 30_000;

/** Chooses whose records the console shows. */
function TenantSwitch() {
  const tenants = useFeed("tenants of the switch", api.listTenants, tenantsMs);
  const names = (tenants.value.data?.tenants ?? []).map(({ name }) => name);
  if (names.length < 2 && tenant.value === "") return null;
  return (
    <Select
      label="Tenant"
      class="tenant"
      value={tenant.value}
      options={[["", "the key's own"], ["*", "all"], ...names]}
      onChange={chooseTenant}
    />
  );
}

followLinks();
followKeys();
render(<App />, document.getElementById("app")!);
