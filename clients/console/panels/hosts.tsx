import { useSignal } from "@preact/signals";
import { announce, attempt } from "../parts/announce.ts";
import { Age, Confirm, Empty, Problem, Status } from "../parts/common.tsx";
import { actions, Table } from "../parts/table.tsx";
import { useFeed } from "../service/feed.ts";
import { hasScope, lacksScope } from "../service/own-key.ts";
import { type JoinedHost, listHosts, revoke } from "../service/operate.ts";

const quietMs = 30_000;

const loadHosts = async (signal: AbortSignal): Promise<JoinedHost[]> =>
  (await listHosts(signal)).hosts;

/** Hosts that have joined with a code: each has a token of its own, which can be revoked. */
export function Hosts() {
  if (lacksScope("agents")) {
    return <Empty>To see the hosts, use an API key that has the scope agents.</Empty>;
  }
  return hasScope("agents") ? <HostTable /> : null;
}

function HostTable() {
  const feed = useFeed("hosts", loadHosts, undefined, quietMs);
  const { data, problem, refresh } = feed.value;
  const asked = useSignal<JoinedHost | undefined>(undefined);
  const end = async ({ id, name }: JoinedHost): Promise<void> => {
    await revoke(id);
    announce(`${name} is revoked`);
    refresh();
  };
  const host = asked.value;
  return (
    <>
      <Problem text={problem} />
      {host && (
        <Confirm
          title={`Revoke ${host.name}`}
          action="Revoke"
          onConfirm={() => void attempt(() => end(host))}
          onClose={() => (asked.value = undefined)}
        >
          Its agents get no more work, and their jobs go to other agents. To return, it must join
          again.
        </Confirm>
      )}
      {data?.length === 0 && (
        <Empty>
          No host has joined with a code. Agents with a configured token are not shown here.
        </Empty>
      )}
      {data && data.length > 0 && (
        <Table columns={["Token", "Host", "Agents", "Joined", "Last used", actions]}>
          {data.map((one) => (
            <tr key={one.id}>
              <td>
                <Status status={one.revoked_at === null ? "valid" : "revoked"} />
              </td>
              <td class="strong">{one.name}</td>
              <td class="number-left" data-name="agents">
                {one.agents.length}
              </td>
              <td class="quiet number-left" data-name="joined">
                <Age at={one.joined_at} />
              </td>
              <td class="quiet number-left" data-name="last used">
                {one.last_used_at ? <Age at={one.last_used_at} /> : "never"}
              </td>
              <td class="row-actions">
                {one.revoked_at === null && (
                  <button
                    class="small danger"
                    aria-label={`Revoke ${one.name}`}
                    onClick={() => (asked.value = one)}
                  >
                    Revoke
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
