import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { formatTime } from "../model/time.ts";
import { Dialog, Problem } from "../parts/common.tsx";
import { copy } from "../parts/copy.ts";
import { messageOf } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { tenant } from "../service/key.ts";
import {
  type ApiKey,
  createKey,
  listTenants,
  type NewApiKey,
  rotateKey,
  type Scope,
} from "../service/tenants.ts";

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

interface Props {
  onMade: (key: NewApiKey) => void;
  onClose: () => void;
}

/** Asks what a new key is for, and makes it. */
export function CreateKey({ onMade, onClose }: Props) {
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
export function RotateKey({ target, onMade, onClose }: Props & { target: ApiKey }) {
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

interface FormProps extends Props {
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
export function ShownOnce({ made, onClose }: { made: NewApiKey; onClose: () => void }) {
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
