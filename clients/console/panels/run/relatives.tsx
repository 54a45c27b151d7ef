import { addressOf } from "../../model/address.ts";
import { useFeed } from "../../service/feed.ts";
import { type ExecutionRecord, getJob, listExecutions } from "../../service/records.ts";
import { Age, ExecutionLink, Status } from "../../parts/common.tsx";

const shown = 5;

/** What it was made from, and what was made from it. */
export function Relatives({ record }: { record: ExecutionRecord }) {
  const { execution_id: id, parent_execution_id: parent, relationship } = record;
  const query = new URLSearchParams({ parent_execution_id: id });
  const children = useFeed(
    `children of ${id}`,
    (signal) => listExecutions(query, shown, signal),
    () => true,
  );
  const origin = useFeed(
    `parent of ${id}`,
    async (signal) => parent && (await getJob(parent, signal)),
    () => true,
  );
  const { items = [], has_more: hasMore } = children.value.data ?? {};
  if (!parent && items.length === 0) return null;
  return (
    <section aria-label="Parent and children" class="relatives">
      {parent && (
        <p>
          {relationship === "fork" ? "Fork" : "Rerun"} of <ExecutionLink id={parent} />{" "}
          {origin.value.data && <Status status={origin.value.data.status} />}
        </p>
      )}
      {items.length > 0 && (
        <>
          <h2>Made from it</h2>
          <ul>
            {items.map((item) => (
              <li key={item.execution_id}>
                <Status status={item.status} /> <ExecutionLink id={item.execution_id} />{" "}
                <span class="quiet">
                  {item.relationship}, <Age at={item.created_at} />
                </span>
              </li>
            ))}
          </ul>
          {hasMore && (
            <a href={addressOf("executions", { parent_execution_id: id })}>All of them</a>
          )}
        </>
      )}
    </section>
  );
}
