import { useSignal } from "@preact/signals";
import { addressOf } from "../model/address.ts";
import { formatCount } from "../model/time.ts";
import {
  Age,
  Empty,
  Heading,
  Loading,
  Problem,
  SessionLink,
  shortId,
  Status,
} from "../parts/common.tsx";
import { Fresh, Pages } from "../parts/pages.tsx";
import { ScopedButton } from "../parts/scoped-button.tsx";
import { actions, number, Table, Whose, whose, wide } from "../parts/table.tsx";
import { Program } from "../panels/run/programs.tsx";
import { EndSession } from "../panels/sessions/end-session.tsx";
import { NewSession } from "../panels/sessions/new-session.tsx";
import { useList } from "../service/list.ts";
import { listSessions, type Session, stateOf, whyOf } from "../service/sessions.ts";

const kinds = [undefined, "ready", "starting", "queued", "ended"] as const;
const firstCall = { path: "/sessions", body: { idle_timeout: 600 } };

/** Interpreters that remember, newest first: those that take calls, and those that have ended. */
export function Sessions({ query }: { query: URLSearchParams }) {
  const list = useList("sessions", query, listSessions, ({ session_id: id }) => id);
  const { data, problem, refresh } = list;
  const status = query.get("status") ?? undefined;
  const ending = useSignal<string | undefined>(undefined);
  const items = data?.items ?? [];
  return (
    <>
      <Heading title="Sessions">
        <Fresh list={list} />
        <NewSession />
      </Heading>
      {(items.length > 0 || status) && (
        <nav class="kinds" aria-label="States">
          {kinds.map((kind) => (
            <a
              key={kind ?? "all"}
              href={addressOf("sessions", { status: kind })}
              aria-current={status === kind ? "page" : undefined}
            >
              {kind ?? "all"}
            </a>
          ))}
        </nav>
      )}
      <Problem text={problem} />
      {items.length > 0 && (
        <Table
          opensRows
          columns={[
            "Status",
            "Session",
            ...whose(),
            "Job type",
            "Python",
            number("Calls"),
            "Made",
            "Used",
            wide("Reason and metadata"),
            actions,
          ]}
        >
          {items.map((session) => (
            <Row
              key={session.session_id}
              session={session}
              onEnd={() => (ending.value = session.session_id)}
            />
          ))}
        </Table>
      )}
      {data && items.length === 0 && status && (
        <Empty>
          No session is {status}. <a href={addressOf("sessions")}>Show all</a>
        </Empty>
      )}
      {data && items.length === 0 && !status && (
        <>
          <Empty>
            A session is a Python interpreter that keeps its variables and files from one call to
            the next. Start one here, or from a program:
          </Empty>
          <Program call={firstCall} />
        </>
      )}
      <Loading feed={list} />
      <Pages
        view="sessions"
        filters={{ status }}
        isFirst={!query.get("before")}
        before={data?.has_more ? items.at(-1)?.session_id : undefined}
      />
      {ending.value && (
        <EndSession id={ending.value} onEnd={refresh} onClose={() => (ending.value = undefined)} />
      )}
    </>
  );
}

function Row({ session, onEnd }: { session: Session; onEnd: () => void }) {
  const { session_id: id, status, job_type, python_version, calls, created_at, used_at } = session;
  const why = whyOf(session);
  return (
    <tr>
      <td>
        <Status status={stateOf(session)} />
      </td>
      <td>
        <SessionLink id={id} />
      </td>
      <Whose of={session} />
      <td>{job_type}</td>
      <td class="number-left" data-name="Python">
        {python_version ?? "–"}
      </td>
      <td class="number" data-name="calls">
        {formatCount(calls)}
      </td>
      <td class="quiet number-left" data-name="made">
        <Age at={created_at} />
      </td>
      <td class="quiet number-left" data-name="used">
        {used_at === null ? "–" : <Age at={used_at} />}
      </td>
      <td class="wide">
        {why && <span class="error-line">{why}</span>}
        {Object.entries(session.metadata ?? {}).map(([name, value]) => (
          <span key={name} class="label" title={`${name}: ${value}`}>
            {name}: {value}
          </span>
        ))}
      </td>
      <td class="row-actions">
        {status !== "ended" && (
          <ScopedButton
            scope="run"
            class="small"
            aria-label={`End session ${shortId(id)}`}
            onClick={onEnd}
          >
            End
          </ScopedButton>
        )}
      </td>
    </tr>
  );
}
