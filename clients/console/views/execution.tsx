import { useSignal } from "@preact/signals";
import { addressOf, executionAddress } from "../model/address.ts";
import { errorLine } from "../model/error-line.ts";
import { failurePrompt } from "../model/prompt.ts";
import { joinArguments } from "../model/arguments.ts";
import { callThatMade, filesOf } from "../model/made-by.ts";
import { laidOut, readInput } from "../model/read-input.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Heading, Loading, Problem, shortId } from "../parts/common.tsx";
import { copy } from "../parts/copy.ts";
import { Editor } from "../parts/editor.tsx";
import { ScopedButton } from "../parts/scoped-button.tsx";
import { Artifacts } from "../panels/run/artifacts.tsx";
import { Attempts } from "../panels/run/attempts.tsx";
import { Facts } from "../panels/run/facts.tsx";
import { Programs } from "../panels/run/programs.tsx";
import { Relatives } from "../panels/run/relatives.tsx";
import { Result, Summary } from "../panels/run/result.tsx";
import { Timeline } from "../panels/run/timeline.tsx";
import { useFollowed } from "../panels/run/use-followed.ts";
import { forgetFork } from "../service/draft.ts";
import { useFeed } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  cancel,
  type ExecutionRecord,
  getSubmitted,
  rerun,
  type Submitted,
  isEnded,
} from "../service/records.ts";

const shownCharacters = 20_000;

/** One execution, followed while it runs. */
export function Execution({ id }: { id: string }) {
  const following = useFollowed(id);
  const feed = useFeed(
    `submitted ${id}`,
    (signal) => getSubmitted(id, signal),
    () => true,
  );
  const submitted = feed.value.data;
  const { followed, problem } = following.value;
  const record = followed?.record;
  return (
    <>
      <Heading
        title={`Execution ${shortId(id)}`}
        tabTitle={record && `${record.status}: execution ${shortId(id)}`}
      >
        {record && (
          <Actions record={record} submitted={submitted} isCancelling={followed.isCancelling} />
        )}
      </Heading>
      <Problem text={problem} />
      <Loading feed={{ data: followed, problem }} />
      {problem && (
        <p>
          <a href={addressOf("executions")}>To the executions</a>
        </p>
      )}
      {followed && <Summary followed={followed} isLinked={false} />}
      {record && (
        <div class="execution">
          <div class="execution-main">
            <Attempts record={record} />
            <Result followed={followed} />
            {submitted && <Program record={record} submitted={submitted} />}
          </div>
          <aside aria-label="About this execution">
            <Timeline record={record} />
            <Relatives record={record} />
            <Facts record={record} />
          </aside>
        </div>
      )}
    </>
  );
}

interface ActionsProps {
  record: ExecutionRecord;
  submitted: Submitted | undefined;
  isCancelling: boolean;
}

function Actions({ record, submitted, isCancelling }: ActionsProps) {
  const isAsked = useSignal(false);
  const isQueueing = useSignal(false);
  const { execution_id: id, status } = record;
  const hasFailed = ["failed", "timeout", "oom"].includes(status);
  const runAgain = async (): Promise<void> => {
    isQueueing.value = true;
    try {
      const { job_id } = await rerun(id);
      announce("Queued again");
      go(executionAddress(job_id));
    } finally {
      isQueueing.value = false;
    }
  };
  const copyPrompt = (): void => {
    if (!submitted) return;
    void copy(failurePrompt({ ...record, ...submitted }));
  };
  // What comes and goes is at the far end: a click meant for one action never meets another.
  return (
    <div class="actions">
      {hasFailed && (
        <button
          onClick={copyPrompt}
          disabled={!submitted}
          title="The failure as a question to a language model"
        >
          Copy as prompt
        </button>
      )}
      {!isEnded(record) && (
        <ScopedButton
          scope="run"
          class="danger"
          onClick={() =>
            void attempt(async () => {
              isAsked.value = true;
              announce("Cancelling…");
              await cancel(id).catch((error: unknown) => {
                isAsked.value = false;
                throw error;
              });
            })
          }
        >
          {isAsked.value || isCancelling ? "Cancelling…" : "Cancel"}
        </ScopedButton>
      )}
      {/* A call without its session would find other variables. */}
      {!record.session_id && (
        <>
          <a class="button" href={addressOf("", { fork: id })} onClick={forgetFork}>
            Fork
          </a>
          <ScopedButton
            scope="run"
            disabled={isQueueing.value}
            onClick={() => void attempt(runAgain)}
          >
            Rerun
          </ScopedButton>
        </>
      )}
    </div>
  );
}

/** Arguments, standard input and files of an execution. */
function Given({ record }: { record: ExecutionRecord }) {
  const { args = [], stdin, execution_id: id } = record;
  const files = filesOf(record);
  return (
    <>
      {args.length > 0 && (
        <>
          <h2>Arguments</h2>
          <pre class="json" tabIndex={0} aria-label="Arguments">
            {joinArguments(args)}
          </pre>
        </>
      )}
      {stdin && (
        <>
          <h2>Standard input</h2>
          <pre class="json" tabIndex={0} aria-label="Standard input">
            {stdin.slice(0, shownCharacters)}
            {stdin.length > shownCharacters && "\n[…]"}
          </pre>
        </>
      )}
      {files.length > 0 && (
        <section aria-label="Input files">
          <h2>Input files</h2>
          <Artifacts id={id} artifacts={files} isInput />
        </section>
      )}
    </>
  );
}

function Program({ record, submitted }: { record: ExecutionRecord; submitted: Submitted }) {
  const read = readInput(submitted.input);
  const input = "input" in read ? read.input : {};
  const files = filesOf(record);
  return (
    <section aria-label="Program">
      <h2>Code</h2>
      <Editor
        class="shown"
        label="Code of this execution"
        language={record.language || record.command ? "text" : "python"}
        text={submitted.code}
        failedLine={isEnded(record) ? errorLine(record.stderr) : undefined}
      />
      <h2>Input</h2>
      <Editor
        class="shown"
        label="Input of this execution"
        language="json"
        text={laidOut(submitted.input)}
      />
      <Given record={record} />
      <Programs
        title="The call that made it"
        call={callThatMade(record, { code: submitted.code, input })}
      >
        {record.batch_id && (
          <p class="quiet">The job was part of a batch. This call makes only this job.</p>
        )}
        {files.length > 0 && !record.parent_execution_id && (
          <p class="quiet">
            Replace the placeholders with the ids of its files. A rerun gets the files without that.
          </p>
        )}
      </Programs>
    </section>
  );
}
