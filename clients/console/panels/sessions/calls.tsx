import { useSignal } from "@preact/signals";
import { addressOf } from "../../model/address.ts";
import { Empty, ExecutionLink, Loading, Problem, Status } from "../../parts/common.tsx";
import { Editor } from "../../parts/editor.tsx";
import { type Feed, useFeed } from "../../service/feed.ts";
import { getSubmitted, type Page } from "../../service/records.ts";
import type { ListedCall } from "../../service/sessions.ts";
import { errorLine } from "../../model/error-line.ts";
import { Result, Times } from "../run/result.tsx";
import { useFollowed } from "../run/use-followed.ts";

interface Props {
  feed: Feed<Page<ListedCall>>;
  session: string;
}

/** The calls of a session, the newest first and open. */
export function Calls({ feed, session }: Props) {
  const { data, problem } = feed;
  const items = data?.items ?? [];
  return (
    <section class="calls" aria-label="Calls">
      <Problem text={problem} />
      <Loading feed={feed} />
      {data && items.length === 0 && <Empty>It has no calls.</Empty>}
      {items.map((call, at) => (
        <Call key={call.execution_id} call={call} isNewest={at === 0} />
      ))}
      {data?.has_more && (
        <p>
          <a href={addressOf("executions", { session_id: session })}>All its calls</a>
        </p>
      )}
    </section>
  );
}

function Call({ call, isNewest }: { call: ListedCall; isNewest: boolean }) {
  const { execution_id: id, context = "default" } = call;
  const isOpen = useSignal(isNewest);
  return (
    <details open={isOpen.value} onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>
        <span class="strong number">{call.call}</span> <Status status={call.status} />{" "}
        <Times record={call} />
        {context !== "default" && <span class="quiet"> in context {context.slice(-8)}</span>}
        {call.error && <span class="quiet error-line"> {call.error.message}</span>}
      </summary>
      {isOpen.value && <Cell id={id} />}
    </details>
  );
}

/** What a call was asked, and what came of it, followed while it runs. */
function Cell({ id }: { id: string }) {
  const following = useFollowed(id);
  const submitted = useFeed(
    `submitted ${id}`,
    (signal) => getSubmitted(id, signal),
    () => true,
  );
  const { followed, problem } = following.value;
  const code = submitted.value.data?.code ?? "";
  return (
    <div class="cell-result">
      <p class="quiet">
        Its record: <ExecutionLink id={id} />
      </p>
      <Problem text={problem} />
      {code !== "" && (
        <Editor
          class="shown"
          label="Code of this call"
          language="python"
          text={code}
          failedLine={followed?.record?.error ? errorLine(followed.record.stderr) : undefined}
        />
      )}
      {followed && <Result followed={followed} />}
    </div>
  );
}
