import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { formatThings } from "../../model/time.ts";
import { Problem, Status } from "../../parts/common.tsx";
import { useFeed } from "../../service/feed.ts";
import type { Followed } from "../../service/follow.ts";
import { isEnded } from "../../service/records.ts";
import { type ShownToolCall, toolCallReader } from "../../service/tool-calls.ts";

/** While the code runs, answers come, which no event brings. */
const runningMs = 2000;
/** So many are open from the start. */
const mostOpen = 3;

/** The calls of the caller's functions that the code has made. Names and arguments are what the code says. */
export function ToolCalls({ followed }: { followed: Followed }) {
  const { id, record, calls: live } = followed;
  const read = useMemo(() => toolCallReader(id), [id]);
  const feed = useFeed(`tool calls of ${id}`, read, (data) => data.isEnded, runningMs);
  const { data, problem } = feed.value;
  const listed = data?.calls ?? [];
  const last = listed.at(-1)?.number ?? 0;
  const calls = [...listed, ...live.filter(({ number }) => number > last)];
  const waiting = calls.filter(({ answer }) => answer === undefined).length;
  const without = isEnded(record) ? "without an answer" : "waiting for an answer";
  return (
    <section class="tool-calls" aria-label="Tool calls">
      <h2>Tool calls</h2>
      <Problem text={problem} />
      <p class="quiet number">
        {data && calls.length === 0 && "The code has called none of its tools."}
        {calls.length > 0 && formatThings(calls.length, "call")}
        {waiting > 0 && `, ${waiting} ${without}`}
      </p>
      {calls.map((call, at) => (
        <Call key={call.number} call={call} without={without} opens={at < mostOpen} />
      ))}
    </section>
  );
}

interface CallProps {
  call: ShownToolCall;
  without: string;
  opens: boolean;
}

function Call({ call: { number, name, given, answer }, without, opens }: CallProps) {
  const isOpen = useSignal(opens);
  const state = answer === undefined ? without : answer.isError ? "failed" : "answered";
  return (
    <details open={isOpen.value} onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>
        <Status status={state} /> <code class="strong">{name}</code>
        {!isOpen.value && <bdi class="quiet">{given.replaceAll(/\s+/g, " ").slice(0, 200)}</bdi>}
      </summary>
      {isOpen.value && (
        <>
          <Text label={`Arguments of call ${number}`} text={given} />
          {answer && (
            <Text
              label={`${answer.isError ? "Error" : "Answer"} of call ${number}`}
              text={answer.text}
            />
          )}
        </>
      )}
    </details>
  );
}

function Text({ label, text }: { label: string; text: string }) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard
    <pre class="json wrapped" tabIndex={0} aria-label={label}>
      {text}
    </pre>
  );
}
