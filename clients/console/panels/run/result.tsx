import type { ComponentChildren } from "preact";
import type { Compilation } from "../../../typescript/src/generated.ts";
import type { Followed } from "../../service/follow.ts";
import { isEnded } from "../../service/records.ts";
import { clock } from "../../service/clock.ts";
import { type Timed, timesOf } from "../../model/phases.ts";
import { formatDuration, withLocalTimes } from "../../model/time.ts";
import { Artifacts } from "./artifacts.tsx";
import { Shown } from "./shown.tsx";
import { ToolCalls } from "./tool-calls.tsx";
import { ExecutionLink, Problem, Status } from "../../parts/common.tsx";
import { OutputView } from "../../parts/output.tsx";

const stateOf = (followed: Followed): string => followed.record?.status ?? "queued";

interface SummaryProps {
  followed: Followed;
  isLinked: boolean;
  children?: ComponentChildren;
}

/** One line about a job: state, where it is, how long it took. */
export function Summary({ followed, isLinked, children }: SummaryProps) {
  const { record, id } = followed;
  return (
    <p class="summary">
      <span role="status">
        <Status status={stateOf(followed)} />
      </span>
      {isLinked && <ExecutionLink id={id} />}
      {record && <Times record={record} />}
      {followed.waits && <span class="quiet">{withLocalTimes(followed.waits)}</span>}
      {children}
    </p>
  );
}

/** How long it waited and how long it ran. */
export function Times({ record }: { record: Timed }) {
  const { waited, ran } = timesOf(record, clock.value);
  const isWaiting = ran === undefined && record.ended_at === null;
  const isRunning = ran !== undefined && record.ended_at === null;
  return (
    <span class="quiet number">
      {isWaiting ? "waiting for" : "waited"} {formatDuration(waited)}
      {ran !== undefined && `, ${isRunning ? "running for" : "ran"} ${formatDuration(ran)}`}
    </span>
  );
}

/** How the compiler ended, and the beginning of what it said. */
function Compiler({ exit_code: code, ms, stdout, stderr }: Compilation) {
  const said = stdout + stderr;
  return (
    <section aria-label="Compiler">
      <h2>Compiler</h2>
      <p class="quiet">
        {code === null ? "killed" : `exit code ${code}`}, {formatDuration(ms)}
      </p>
      {said !== "" && (
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard
        <pre class="json" tabIndex={0} aria-label="Output of the compiler">
          {said}
        </pre>
      )}
    </section>
  );
}

/** What came of a job: error, output, result, files. */
export function Result({ followed }: { followed: Followed }) {
  const { record, output, version, id } = followed;
  const ended = isEnded(record);
  const files = record?.artifacts ?? [];
  const shown = record?.results ?? followed.shown;
  const isSilent = ended && output.bytes === 0 && shown.length > 0;
  const isCut = record?.stdout_truncated || record?.stderr_truncated;
  return (
    <>
      {record?.error &&
        (record.status === "cancelled" ? (
          <p class="quiet">{record.error.message}</p>
        ) : (
          <Problem
            text={`${record.error.type} in ${record.error.phase}: ${record.error.message}`}
          />
        ))}
      {record?.warnings?.map((warning) => (
        <p class="quiet">{warning}</p>
      ))}
      {record?.compile && <Compiler {...record.compile} />}
      {!isSilent && (
        <OutputView
          label="Output"
          fileName={`execution-${id}.txt`}
          output={output}
          version={version}
          startedAt={record?.started_at ? Date.parse(record.started_at) : undefined}
          isLive={record?.status === "running"}
          showsEnd={record?.status !== "succeeded"}
          empty={ended ? "It wrote no output." : "No output yet."}
        />
      )}
      {followed.isHeld && (
        <p class="quiet">It writes more than is shown live: the rest comes when it has ended.</p>
      )}
      {isCut && (
        <p class="quiet">
          The output is longer than the service keeps (max_stdout_bytes): its middle is left out.
        </p>
      )}
      {shown.length > 0 && <Shown items={shown} isCut={record?.results_truncated === true} />}
      {record?.tools && record.started_at !== null && <ToolCalls key={id} followed={followed} />}
      {record?.output && (
        <section aria-label="Result">
          <h2>Result</h2>
          {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard */}
          <pre class="json" tabIndex={0} aria-label="Result">
            {JSON.stringify(record.output, null, 2)}
          </pre>
        </section>
      )}
      {files.length > 0 && (
        <section aria-label="Files">
          <h2>Files</h2>
          <Artifacts id={id} artifacts={files} />
        </section>
      )}
    </>
  );
}
