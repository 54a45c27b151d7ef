import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { addressOf } from "./model/address.ts";
import { formatCount, formatTime } from "./model/time.ts";
import { openDialogs } from "./parts/announce.ts";
import { Announcement, Heading, Status } from "./parts/common.tsx";
import { KeyDialog } from "./panels/key-dialog.tsx";
import { lostSince } from "./service/client.ts";
import { useFeed } from "./service/feed.ts";
import { TenantSwitch } from "./panels/tenant-switch.tsx";
import { forgetKey, key, keyWanted, tenant } from "./service/key.ts";
import { route } from "./service/location.ts";
import { getHealth, type Health } from "./service/records.ts";
import { getOwnKey, hasScope, ownKey } from "./service/own-key.ts";
import { Audit } from "./views/audit.tsx";
import { DeadLetters } from "./views/dead-letters.tsx";
import { Execution } from "./views/execution.tsx";
import { Executions } from "./views/executions.tsx";
import { HealthView } from "./views/health.tsx";
import { JobTypes } from "./views/job-types.tsx";
import { Keys } from "./views/keys.tsx";
import { Playground } from "./views/playground.tsx";
import { Queue } from "./views/queue.tsx";
import { SessionView } from "./views/session.tsx";
import { Sessions } from "./views/sessions.tsx";
import { UsageView } from "./views/usage.tsx";
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

export function App() {
  const health = useFeed("health", getHealth);
  const own = useFeed("own key", getOwnKey, undefined, ownKeyMs).value.data;
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

function View() {
  const now = route.value;
  switch (now.view) {
    case "playground":
      return <Playground query={now.query} />;
    case "executions":
      return <Executions query={now.query} />;
    case "execution":
      return <Execution key={now.id} id={now.id} />;
    case "sessions":
      return <Sessions query={now.query} />;
    case "session":
      return <SessionView key={now.id} id={now.id} />;
    case "queue":
      return <Queue />;
    case "job-types":
      return <JobTypes query={now.query} />;
    case "dead-letters":
      return <DeadLetters query={now.query} />;
    case "webhooks":
      return <Webhooks query={now.query} />;
    case "keys":
      return <Keys query={now.query} />;
    case "usage":
      return <UsageView />;
    case "audit":
      return <Audit query={now.query} />;
    case "health":
      return <HealthView />;
    case "nowhere":
      return (
        <>
          <Heading title="No such page" />
          <p>
            The console has no page at this address. <a href={addressOf("")}>To the playground</a>
          </p>
        </>
      );
  }
}
