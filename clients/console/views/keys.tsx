import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { addressOf } from "../model/address.ts";
import { formatTime } from "../model/numbers.ts";
import {
  Age,
  announce,
  attempt,
  Confirm,
  copy,
  Dialog,
  Empty,
  Heading,
  Loading,
  Problem,
  Status,
} from "../parts/elements.tsx";
import { actions, Table } from "../parts/table.tsx";
import { clock, messageOf, tenant } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import {
  type ApiKey,
  createKey,
  listKeys,
  listTenants,
  type NewApiKey,
  revokeKey,
  rotateKey,
  type Scope,
} from "../service/records.ts";

type Doing = "create" | { rotate: ApiKey } | { revoke: ApiKey } | { made: NewApiKey };

/** The keys that operators made: made, rotated and revoked here. Those of the configuration are not shown. */
export function Keys({ query }: { query: URLSearchParams }) {
  const feed = useFeed("keys", listKeys);
  const { data, problem, refresh } = feed.value;
  const doing = useSignal<Doing | undefined>(undefined);
  const now = doing.value;
  // A dialog that is gone still says that it was closed: the next one, which shows a key, must stay.
  const close = (): void => void (doing.value === now && (doing.value = undefined));
  const made = (key: NewApiKey): void => {
    doing.value = { made: key };
    refresh();
  };
  const revoke = async ({ id, name }: ApiKey): Promise<void> => {
    await revokeKey(id);
    announce(`${name} is revoked`);
    refresh();
  };
  const showsAll = query.get("show") === "all";
  const valid = data?.filter((key) => stateOf(key) !== "revoked" && stateOf(key) !== "expired");
  const shown = (showsAll ? data : valid)?.toReversed();
  return (
    <>
      <Heading title="Keys">
        {data && <button onClick={() => (doing.value = "create")}>Create a key</button>}
      </Heading>
      {now === "create" && <CreateKey onMade={made} onClose={close} />}
      {typeof now === "object" && "rotate" in now && (
        <RotateKey target={now.rotate} onMade={made} onClose={close} />
      )}
      {typeof now === "object" && "made" in now && <ShownOnce made={now.made} onClose={close} />}
      {typeof now === "object" && "revoke" in now && (
        <Confirm
          title={`Revoke ${now.revoke.name}`}
          action="Revoke"
          onConfirm={() => void attempt(() => revoke(now.revoke))}
          onClose={close}
        >
          Requests with it are refused from now on. It cannot be made valid again. The records of{" "}
          {now.revoke.tenant} stay.
        </Confirm>
      )}
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {data && valid && valid.length < data.length && (
        <nav class="kinds" aria-label="States">
          <a href={addressOf("keys")} aria-current={showsAll ? undefined : "page"}>
            valid <span class="number">{valid.length}</span>
          </a>
          <a href={addressOf("keys", { show: "all" })} aria-current={showsAll ? "page" : undefined}>
            all <span class="number">{data.length}</span>
          </a>
        </nav>
      )}
      {shown && shown.length > 0 && (
        <Table
          columns={["State", "Name", "Tenant", "Scopes", "Last used", "Expires", "Made", actions]}
        >
          {shown.map((key) => (
            <KeyRow
              key={key.id}
              target={key}
              onRotate={() => (doing.value = { rotate: key })}
              onRevoke={() => (doing.value = { revoke: key })}
            />
          ))}
        </Table>
      )}
      {shown?.length === 0 && (
        <Empty>
          {data?.length === 0
            ? "No key was made here. Those that the configuration names are not shown. A team or a program can have one of its own, with its own records and limits."
            : "Every key that was made here is void."}
        </Empty>
      )}
    </>
  );
}

interface RowProps {
  target: ApiKey;
  onRotate: () => void;
  onRevoke: () => void;
}

function KeyRow({ target, onRotate, onRevoke }: RowProps) {
  const { id, name, tenant, scopes, last_used_at, expires_at, created_at } = target;
  const state = stateOf(target);
  return (
    <tr>
      <td
        title={
          state === "rotated"
            ? `The old key holds until ${formatTime(target.old_valid_until!)}`
            : undefined
        }
      >
        <Status status={state} />
      </td>
      <td class="strong" title={id}>
        {name}
      </td>
      <td data-name="tenant">{tenant}</td>
      <td data-name="scopes">{scopes.join(", ")}</td>
      <td class="quiet number-left" data-name="last used">
        {last_used_at ? <Age at={last_used_at} /> : "never"}
      </td>
      <td class="quiet number-left" data-name="expires">
        {expires_at ? formatTime(expires_at) : "never"}
      </td>
      <td class="quiet number-left" data-name="made">
        <Age at={created_at} />
      </td>
      <td class="row-actions">
        {(state === "valid" || state === "rotated") && (
          <>
            <button class="small" aria-label={`Rotate ${name}`} onClick={onRotate}>
              Rotate
            </button>{" "}
            <button class="small" aria-label={`Revoke ${name}`} onClick={onRevoke}>
              Revoke
            </button>
          </>
        )}
      </td>
    </tr>
  );
}

/** Rotated: the key before the last rotation holds too. */
function stateOf({ revoked_at, expires_at, old_valid_until }: ApiKey) {
  if (revoked_at !== null) return "revoked";
  if (expires_at !== null && isOver(expires_at)) return "expired";
  return old_valid_until && !isOver(old_valid_until) ? "rotated" : "valid";
}

const isOver = (time: string): boolean => Date.parse(time) <= clock.value;

const scopes: [Scope, string][] = [
  ["run", "submit, cancel and remove"],
  ["read", "records, output and files"],
  ["build", "build images"],
  ["monitor", "metrics and history"],
  ["agents", "hosts and agents"],
  ["admin", "keys, tenants, audit"],
];
const dayS = 86_400;
const lifetimes: [string, string][] = [
  ["", "never"],
  [String(30 * dayS), "in 30 days"],
  [String(90 * dayS), "in 90 days"],
  [String(365 * dayS), "in a year"],
];
const overlaps: [string, string][] = [
  [String(dayS), "for a day more"],
  ["3600", "for an hour more"],
  ["0", "no longer"],
];

interface DialogProps {
  onMade: (key: NewApiKey) => void;
  onClose: () => void;
}

/** Asks what a new key is for, and makes it. */
function CreateKey({ onMade, onClose }: DialogProps) {
  const tenants = useFeed("tenants of a new key", listTenants, () => true).value.data;
  return (
    <Form title="Create a key" action="Create" work={make} onMade={onMade} onClose={onClose}>
      <label>
        Name
        <input name="name" required autofocus autocomplete="off" placeholder="who uses it" />
      </label>
      <label>
        Tenant
        <input
          name="tenant"
          list="tenants"
          defaultValue={tenant.value === "*" ? "" : tenant.value}
          autocomplete="off"
          spellcheck={false}
          placeholder="your own; a new name makes one"
        />
        <datalist id="tenants">
          {Array.isArray(tenants) && tenants.map(({ name }) => <option key={name} value={name} />)}
        </datalist>
      </label>
      <fieldset>
        <legend>It may</legend>
        {scopes.map(([scope, words]) => (
          <label key={scope} class="check">
            <input
              type="checkbox"
              name="scope"
              value={scope}
              defaultChecked={scope === "run" || scope === "read"}
            />
            <span>
              <span class="strong">{scope}</span>: {words}
            </span>
          </label>
        ))}
      </fieldset>
      <Choice name="expires" title="Expires" choices={lifetimes} />
    </Form>
  );
}

function make(given: FormData): Promise<NewApiKey> {
  const text = (name: string): string => (given.get(name) as string).trim();
  return createKey({
    name: text("name"),
    scopes: given.getAll("scope") as Scope[],
    ...(text("tenant") && { tenant: text("tenant") }),
    ...(text("expires") && { expires_in_s: Number(text("expires")) }),
  });
}

/** Makes a new key in the place of one. */
function RotateKey({ target, onMade, onClose }: DialogProps & { target: ApiKey }) {
  return (
    <Form
      title={`Rotate ${target.name}`}
      action="Make a new key"
      work={(given) => rotateKey(target.id, Number(given.get("old")))}
      onMade={onMade}
      onClose={onClose}
    >
      <p>Records, limits and idempotency keys stay: the new key takes the place of the old one.</p>
      <Choice name="old" title="The old key holds" choices={overlaps} />
    </Form>
  );
}

interface FormProps extends DialogProps {
  title: string;
  /** Name of the action, on its button. */
  action: string;
  work: (given: FormData) => Promise<NewApiKey>;
  children: ComponentChildren;
}

function Form({ title, action, work, onMade, onClose, children }: FormProps) {
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const submit = async (form: HTMLFormElement): Promise<void> => {
    // A second key would be shown to nobody.
    if (isBusy.value) return;
    isBusy.value = true;
    problem.value = "";
    try {
      onMade(await work(new FormData(form)));
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <Dialog label={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <h2>{title}</h2>
        {children}
        <Problem text={problem.value} />
        <p class="actions">
          <button class="primary" aria-disabled={isBusy.value}>
            {action}
          </button>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </p>
      </form>
    </Dialog>
  );
}

interface ChoiceProps {
  name: string;
  title: string;
  choices: [value: string, title: string][];
}

function Choice({ name, title, choices }: ChoiceProps) {
  return (
    <label>
      {title}
      <select name={name}>
        {choices.map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A key that was just made. */
function ShownOnce({ made, onClose }: { made: NewApiKey; onClose: () => void }) {
  const { key, name, tenant, scopes: given, expires_at, old_valid_until } = made;
  return (
    <Dialog label={`Key ${name}`} onClose={onClose}>
      <form method="dialog">
        <h2>Key {name}</h2>
        <pre class="json wrapped" tabIndex={0} aria-label="The key">
          {key}
        </pre>
        <p>
          Copy it now: it is not shown again. It may {given.join(", ")} for the tenant {tenant}
          {expires_at && `, until ${formatTime(expires_at)}`}.
        </p>
        {old_valid_until && <p>The old key holds until {formatTime(old_valid_until)}.</p>}
        <p class="actions">
          <button type="button" onClick={() => void copy(key)}>
            Copy
          </button>
          <button class="primary">Done</button>
        </p>
      </form>
    </Dialog>
  );
}
