import { useSignal } from "@preact/signals";
import { addressOf } from "../model/address.ts";
import { formatTime } from "../model/time.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Age, Confirm, Empty, Heading, Loading, Problem, Status } from "../parts/common.tsx";
import { actions, Table } from "../parts/table.tsx";
import { CreateKey, RotateKey, ShownOnce } from "../panels/keys.tsx";
import { clock } from "../service/clock.ts";
import { useFeed } from "../service/feed.ts";
import { type ApiKey, listKeys, type NewApiKey, revokeKey } from "../service/tenants.ts";

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
