import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { errorLine } from "../model/error-line.ts";
import { joinArguments, splitArguments } from "../model/arguments.ts";
import { filesOf } from "../model/made-by.ts";
import { laidOut, readInput } from "../model/read-input.ts";
import { type Call, executeCall } from "../model/snippets.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Empty, ExecutionLink, Heading, Problem } from "../parts/common.tsx";
import { Editor } from "../parts/editor.tsx";
import { Inputs } from "../panels/inputs.tsx";
import { Programs } from "../panels/programs.tsx";
import { Result, Summary } from "../panels/result.tsx";
import { useFollowed } from "../panels/use-followed.ts";
import { messageOf } from "../service/client.ts";
import { beginFork, changeDraft, type Draft, draft, uploading } from "../service/draft.ts";
import { useFeed } from "../service/feed.ts";
import { isEnded } from "../service/follow.ts";
import { go } from "../service/location.ts";
import {
  type Artifact,
  type AsyncSubmitRequest,
  cancel,
  fork,
  type ForkRequest,
  getExecution,
  getSubmitted,
  listJobTypes,
  submit,
  type Submitted,
} from "../service/records.ts";

/** Write code, run it, watch it. `fork` in the query names an execution that it begins from, `job` the one that is shown. */
export function Playground({ query }: { query: URLSearchParams }) {
  const parent = query.get("fork") ?? undefined;
  const job = query.get("job") ?? undefined;
  const following = useFollowed(job);
  // Asks again while the service is gone.
  const forked = useFeed(
    `fork of ${parent}`,
    (signal) => loadParent(parent, signal),
    () => true,
  );
  const original = forked.value.data;
  const showsChanges = useSignal(true);
  const problem = useSignal("");
  const isSending = useSignal(false);
  /** The run that was asked to end. */
  const stopped = useSignal("");
  /** The code of the run that is shown: only this can have its error marked. */
  const ran = useSignal({ job: "", code: "" });

  useEffect(() => {
    if (job === undefined || ran.value.job === job) return;
    void attempt(async () => {
      const { code } = await getSubmitted(job);
      ran.value = { job, code };
    });
  }, [job]);

  const { code, input } = draft.value;
  const read = readDraft(draft.value, parent);
  /** The editors begin anew where the text comes from elsewhere. */
  const editing = parent ?? "new";
  const { followed } = following.value;
  const isRunning = followed !== undefined && !isEnded(followed.record);
  const isOfOtherCode = ran.value.job === job && ran.value.code !== code;
  const failed =
    followed && isEnded(followed.record) && ran.value.job === job && !isOfOtherCode
      ? errorLine(followed.record?.stderr ?? "")
      : undefined;

  const isLoading = parent !== undefined && !original;
  const isBusy = isSending.value || uploading.value.length > 0 || isLoading;

  const run = async (): Promise<void> => {
    if (isBusy || isRunning) return;
    problem.value = "";
    const now = readDraft(draft.value, parent);
    if ("problem" in now) {
      announce(now.problem);
      return;
    }
    isSending.value = true;
    try {
      const { body } = now.call;
      const { job_id } =
        parent === undefined
          ? await submit(body as AsyncSubmitRequest)
          : await fork(parent, body as ForkRequest);
      ran.value = { job: job_id, code: body.code as string };
      go(addressOf("", { fork: parent, job: job_id }), { replace: true });
      // On a narrow screen the run is below the code.
      document.getElementById("run")?.scrollIntoView({ block: "nearest" });
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isSending.value = false;
    }
  };

  const stop = async (id: string): Promise<void> => {
    await cancel(id);
    stopped.value = id;
    announce("Stopping…");
  };

  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void run();
    };
    addEventListener("keydown", onKey, { capture: true });
    return () => removeEventListener("keydown", onKey, { capture: true });
  });

  return (
    <>
      <Heading
        title="Playground"
        tabTitle={followed?.record && `${followed.record.status}: playground`}
      >
        <JobTypeChoice />
        {/* Neither takes the place of the other: a click on Stop at the end of a run begins no new one. Both keep the focus. */}
        <div class="actions">
          <button
            aria-disabled={!isRunning}
            onClick={() => isRunning && void attempt(() => stop(followed.id))}
          >
            {isRunning && (followed.isCancelling || stopped.value === followed.id)
              ? "Stopping…"
              : "Stop"}
          </button>
          <button
            class="primary"
            title="Ctrl+Enter"
            aria-disabled={isBusy || isRunning}
            onClick={() => void run()}
          >
            Run <kbd>Ctrl ⏎</kbd>
          </button>
        </div>
      </Heading>
      {parent !== undefined && (
        <p class="note">
          <span>
            Fork of <ExecutionLink id={parent} />: it runs on the same input and files.
          </span>
          <label class="check">
            <input
              type="checkbox"
              checked={showsChanges.value}
              onChange={(event) => (showsChanges.value = event.currentTarget.checked)}
            />
            Show changes
          </label>
          <a href={addressOf("")}>Leave the fork</a>
        </p>
      )}
      <Problem text={forked.value.problem} />
      {isLoading && !forked.value.problem && <Empty>Loading its code…</Empty>}
      {!isLoading && (
        <div class="playground">
          <section aria-label="Code">
            <Editor
              key={editing}
              class="code"
              label="Python code"
              language="python"
              text={code}
              onChange={(next) => changeDraft({ code: next })}
              failedLine={failed}
              original={showsChanges.value ? original?.code : undefined}
              isFocused
            />
            <h2>
              {parent === undefined ? "Input" : "Input of its parent"}
              <span class="quiet hint end">Esc, then Tab leaves an editor</span>
            </h2>
            <Editor
              key={`input ${editing}`}
              class="input"
              label="Input, JSON"
              language="json"
              text={input}
              {...(parent === undefined && {
                onChange: (next: string) => changeDraft({ input: next }),
              })}
            />
            {"problem" in read && <p class="problem wrong">{read.problem}</p>}
            <Inputs parentFiles={parent === undefined ? undefined : (original?.files ?? [])} />
            {"call" in read && <Programs title="The same from a program" call={read.call} />}
          </section>
          <section aria-label="Run" class="run" id="run">
            <Problem text={problem.value || following.value.problem} />
            {followed ? (
              <>
                <Summary followed={followed} isLinked>
                  {isOfOtherCode && <span class="quiet">its code was different</span>}
                </Summary>
                <Result followed={followed} />
              </>
            ) : (
              <Empty>Run shows the output, the result and the files here.</Empty>
            )}
          </section>
        </div>
      )}
    </>
  );
}

interface Parent extends Submitted {
  files: Artifact[];
}

/** Begins the draft of a fork with what its parent was submitted with. */
async function loadParent(
  id: string | undefined,
  signal: AbortSignal,
): Promise<Parent | undefined> {
  if (id === undefined) return undefined;
  const [submitted, record] = await Promise.all([
    getSubmitted(id, signal),
    getExecution(id, signal),
  ]);
  signal.throwIfAborted();
  beginFork(id, {
    code: submitted.code,
    input: laidOut(submitted.input),
    jobType: record.job_type,
    args: joinArguments(record.args ?? []),
    stdin: record.stdin ?? "",
  });
  return { ...submitted, files: filesOf(record) };
}

/** What is sent for the draft, or what is wrong with it. */
function readDraft(now: Draft, parent: string | undefined): { call: Call } | { problem: string } {
  const read = readInput(now.input);
  if ("problem" in read) return read;
  const split = splitArguments(now.args);
  if ("problem" in split) return split;
  const { code, jobType, stdin, files } = now;
  const { args } = split;
  const timeout = now.timeout === "" ? undefined : Number(now.timeout);
  if (timeout !== undefined && !(Number.isInteger(timeout) && timeout > 0)) {
    return { problem: "The time limit must be a whole number of seconds, at least 1." };
  }
  if (parent === undefined) return { call: executeCall({ ...now, ...read, args, timeout, files }) };
  const body = { code, job_type: jobType, args, stdin, ...(timeout !== undefined && { timeout }) };
  return { call: { path: `/jobs/${parent}/fork`, body } };
}

function JobTypeChoice() {
  const types = useFeed("names of job types", listJobTypes, () => true);
  const names = types.value.data?.map(({ name }) => name) ?? [];
  const { jobType } = draft.value;
  const shown = names.includes(jobType) ? names : [...names, jobType];
  return (
    <label class="inline">
      Job type
      <select
        value={jobType}
        onChange={(event) => changeDraft({ jobType: event.currentTarget.value })}
      >
        {shown.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
