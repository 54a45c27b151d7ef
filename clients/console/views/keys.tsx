import type { ApiKey, NewApiKey, Scope } from "../../typescript/src/generated.ts";
import { addressOf } from "../model/address.ts";
import { formatTime } from "../model/numbers.ts";
import {
  announce,
  confirm,
  Empty,
  FormDialog,
  Heading,
  Loading,
  openDialog,
  Problem,
  SecretDialog,
  Select,
  Status,
} from "../parts/elements.tsx";
import { Kinds } from "../parts/list.tsx";
import { actions, age, type Column, named, plain, Table } from "../parts/table.tsx";
import { api, clock, tenant } from "../service/client.ts";
import { useFeed, useOnce } from "../service/feed.ts";

/** Those of the tenant that is chosen, or of all. */
async function listKeys(options: { signal: AbortSignal }): Promise<ApiKey[]> {
  const chosen = tenant.value === "*" || tenant.value === "" ? {} : { tenant: tenant.value };
  return (await api.listKeys(chosen, options)).keys;
}

/** The keys that operators made: made, rotated and revoked here. Those of the configuration are not shown. */
export function Keys({ query }: { query: URLSearchParams }) {
  const feed = useFeed("keys", listKeys);
  const { data, problem, refresh } = feed.value;
  const showsAll = query.get("show") === "all";
  const valid = data?.filter((key) => !["revoked", "expired"].includes(stateOf(key)));
  const shown = (showsAll ? data : valid)?.toReversed();
  return (
    <>
      <Heading title="Keys">
        {data && (
          <button onClick={() => openDialog(<CreateKey refresh={refresh} />)}>Create a key</button>
        )}
      </Heading>
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {data && valid && valid.length < data.length && (
        <Kinds
          label="States"
          kinds={[
            { title: "valid", address: addressOf("keys"), isHere: !showsAll, count: valid.length },
            {
              title: "all",
              address: addressOf("keys", { show: "all" }),
              isHere: showsAll,
              count: data.length,
            },
          ]}
        />
      )}
      {shown && shown.length > 0 && (
        <Table columns={columns} items={shown} idOf={({ id }) => id} refresh={refresh} />
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

const columns: Column<ApiKey>[] = [
  plain("State", (key) => <Status status={stateOf(key)} />, {
    hint: (key) =>
      stateOf(key) === "rotated"
        ? `The old key holds until ${formatTime(key.old_valid_until!)}`
        : undefined,
  }),
  plain("Name", ({ name }) => name, { class: "strong", hint: ({ id }) => id }),
  named("Tenant", ({ tenant }) => tenant),
  named("Scopes", ({ scopes }) => scopes.join(", ")),
  age("Last used", ({ last_used_at }) => last_used_at, { isNamed: true, never: "never" }),
  named("Expires", ({ expires_at }) => (expires_at ? formatTime(expires_at) : "never"), {
    class: "quiet number-left",
  }),
  age("Made", ({ created_at }) => created_at, { isNamed: true }),
  actions(
    (key, refresh) =>
      ["valid", "rotated"].includes(stateOf(key)) && (
        <>
          <button
            class="small"
            aria-label={`Rotate ${key.name}`}
            onClick={() => openDialog(<RotateKey target={key} refresh={refresh} />)}
          >
            Rotate
          </button>{" "}
          <button
            class="small"
            aria-label={`Revoke ${key.name}`}
            onClick={() => confirmRevoke(key, refresh)}
          >
            Revoke
          </button>
        </>
      ),
  ),
];

function confirmRevoke({ id, name, tenant }: ApiKey, refresh: () => void): void {
  confirm({
    title: `Revoke ${name}`,
    action: "Revoke",
    text: `Requests with it are refused from now on. It cannot be made valid again. The records of ${tenant} stay.`,
    work: async () => {
      await api.revokeKey({ id });
      announce(`${name} is revoked`);
      refresh();
    },
  });
}

/** Rotated: the key before the last rotation holds too. */
function stateOf({ revoked_at, expires_at, old_valid_until }: ApiKey): string {
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

/** Asks what a new key is for, and makes it. */
function CreateKey({ refresh }: { refresh: () => void }) {
  const tenants = useOnce("tenants of a new key", api.listTenants);
  const make = async (given: FormData): Promise<void> => {
    const text = (name: string): string => (given.get(name) as string).trim();
    const keyRequest = {
      name: text("name"),
      scopes: given.getAll("scope") as Scope[],
      ...(text("tenant") && { tenant: text("tenant") }),
      ...(text("expires") && { expires_in_s: Number(text("expires")) }),
    };
    show(await api.createKey({ keyRequest }), refresh);
  };
  return (
    <FormDialog title="Create a key" action="Create" work={make}>
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
          {tenants.value.data?.tenants.map(({ name }) => (
            <option key={name} value={name} />
          ))}
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
      <Select label="Expires" name="expires" options={lifetimes} />
    </FormDialog>
  );
}

/** Makes a new key in the place of one. */
function RotateKey({ target, refresh }: { target: ApiKey; refresh: () => void }) {
  const { id, name } = target;
  const make = async (given: FormData): Promise<void> => {
    const keyRotation = { old_valid_s: Number(given.get("old")) };
    show(await api.rotateKey({ id, keyRotation }), refresh);
  };
  return (
    <FormDialog title={`Rotate ${name}`} action="Make a new key" work={make}>
      <p>Records, limits and idempotency keys stay: the new key takes the place of the old one.</p>
      <Select label="The old key holds" name="old" options={overlaps} />
    </FormDialog>
  );
}

/** Shows a key that was just made, once. */
function show(made: NewApiKey, refresh: () => void): void {
  const { key, name, tenant, scopes: given, expires_at, old_valid_until } = made;
  openDialog(
    <SecretDialog title={`Key ${name}`} label="The key" secret={key}>
      <p>
        Copy it now: it is not shown again. It may {given.join(", ")} for the tenant {tenant}
        {expires_at && `, until ${formatTime(expires_at)}`}.
      </p>
      {old_valid_until && <p>The old key holds until {formatTime(old_valid_until)}.</p>}
    </SecretDialog>,
  );
  refresh();
}
