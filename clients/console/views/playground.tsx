import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { addressOf } from "../model/address.ts";
import { formatBytes, formatTime } from "../model/numbers.ts";
import { errorLine } from "../model/record.ts";
import { Editor, useCtrlEnter } from "../parts/editor.tsx";
import {
  Age,
  announce,
  attempt,
  Empty,
  ExecutionLink,
  Heading,
  Problem,
  ScopedButton,
  Select,
  shortId,
  whyNot,
} from "../parts/elements.tsx";
import { Programs, Result, Summary, useFollowed } from "../parts/run.tsx";
import { api, lostSince, messageOf } from "../service/client.ts";
import {
  addFile,
  changeDraft,
  draft,
  keptFiles,
  loadParent,
  noteRun,
  type Parent,
  readDraft,
  removeFile,
  runs,
  send,
  uploading,
} from "../service/draft.ts";
import { useOnce } from "../service/feed.ts";
import { go } from "../service/location.ts";
import { type Artifact, getSubmitted, isEnded } from "../service/records.ts";

/** Write code, run it, watch it. `fork` in the query names an execution that it begins from, `job` the one that is shown. */
export function Playground({ query }: { query: URLSearchParams }) {
  const parent = query.get("fork") ?? undefined;
  const job = query.get("job") ?? undefined;
  const following = useFollowed(job);
  // Asks again while the service is gone.
  const forked = useOnce(`fork of ${parent}`, ({ signal }) => loadParent(parent, signal));
  const original = forked.value.data;
  const problem = useSignal("");
  // A message about a missing answer goes when there is an answer.
  useEffect(() => {
    if (lostSince.value === undefined) problem.value = "";
  }, [lostSince.value]);
  const isSending = useSignal(false);
  /** The run that was asked to end. */
  const stopped = useSignal("");
  /** The code of the run that is shown: only this can have its error marked. */
  const ran = useSignal({ job: "", code: "" });
  /** Counts how often the text of the editors was replaced. */
  const replaced = useSignal(0);

  useEffect(() => {
    if (job === undefined || ran.value.job === job) return;
    void attempt(async () => {
      const { code } = await getSubmitted(job);
      ran.value = { job, code };
    });
  }, [job]);

  const { code, input, language } = draft.value;
  const isPython = language === "python";
  const read = readDraft(draft.value, original);
  /** The editors begin anew where the text comes from elsewhere. */
  const editing = `${parent ?? "new"} ${replaced.value}`;
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
    const why = whyNot("run");
    if (why !== undefined) return announce(why);
    problem.value = "";
    const now = readDraft(draft.value, original);
    if ("problem" in now) {
      announce(now.problem);
      return;
    }
    isSending.value = true;
    try {
      const job = await send(now, parent);
      const { code: sent } = now.call.body as { code: string };
      noteRun(job, sent);
      ran.value = { job: job.job_id, code: sent };
      go(addressOf("", { fork: parent, job: job.job_id }), { replace: true });
      // On a narrow screen the run is below the code.
      const shown = document.getElementById("run")!;
      const { top } = shown.getBoundingClientRect();
      if (top < 0 || top > innerHeight / 2) shown.scrollIntoView();
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isSending.value = false;
    }
  };

  const takeCode = (): void => {
    changeDraft({ code: ran.value.code });
    replaced.value += 1;
  };
  const stop = async (id: string): Promise<void> => {
    stopped.value = id;
    announce("Stopping…");
    await api.cancelJob({ id }).catch((error: unknown) => {
      stopped.value = "";
      throw error;
    });
  };

  useCtrlEnter(run);

  return (
    <>
      <Heading
        title="Playground"
        tabTitle={followed?.record && `${followed.record.status}: playground`}
      >
        <JobChoices />
        {/* Neither takes the place of the other: a click on Stop at the end of a run begins no new one. Both keep the focus. */}
        <div class="actions">
          <ScopedButton
            scope="run"
            aria-disabled={!isRunning}
            work={async () => {
              if (isRunning) await stop(followed.id);
            }}
          >
            {isRunning && (followed.isCancelling || stopped.value === followed.id)
              ? "Stopping…"
              : "Stop"}
          </ScopedButton>
          <ScopedButton
            scope="run"
            class="primary"
            title="Ctrl+Enter"
            aria-disabled={isBusy || isRunning}
            onClick={() => void run()}
          >
            Run <kbd>Ctrl ⏎</kbd>
          </ScopedButton>
        </div>
      </Heading>
      {parent !== undefined && (
        <p class="note">
          <span>
            Fork of <ExecutionLink id={parent} />
            {"call" in read && !read.isFork
              ? ": with another input or other files it is an execution of its own."
              : ": it runs on the same input and files, unless you change them."}
          </span>
          <a href={addressOf("")}>Leave the fork</a>
        </p>
      )}
      <Problem text={forked.value.problem} />
      {isLoading && !forked.value.problem && <Empty>Loading its code…</Empty>}
      {!isLoading && (
        <div class="playground">
          <section aria-label="Code">
            <Editor
              key={`${editing} ${isPython}`}
              class="code"
              label={isPython ? "Python code" : "Code"}
              language={isPython ? "python" : "text"}
              text={code}
              onChange={(next) => changeDraft({ code: next })}
              failedLine={failed}
              isFocused
            />
            <h2>
              Input
              <span class="quiet hint end">Esc, then Tab leaves an editor</span>
            </h2>
            <Editor
              key={`input ${editing}`}
              class="input"
              label="Input, JSON"
              language="json"
              text={input}
              onChange={(next) => changeDraft({ input: next })}
            />
            {"problem" in read && <p class="problem wrong">{read.problem}</p>}
            <Inputs parent={original} />
            {"call" in read && <Programs title="The same as a command" call={read.call} />}
          </section>
          <section aria-label="Run" class="run" id="run">
            <Problem text={problem.value || following.value.problem} />
            {followed ? (
              <>
                <Summary followed={followed} isLinked>
                  {isOfOtherCode && (
                    <span class="quiet">
                      its code was different{" "}
                      {ran.value.job === job && (
                        <button class="small" onClick={takeCode}>
                          Take its code
                        </button>
                      )}
                    </span>
                  )}
                </Summary>
                <Result followed={followed} />
              </>
            ) : (
              <Empty>Run shows the output, the result and the files here.</Empty>
            )}
            <EarlierRuns shown={job} />
          </section>
        </div>
      )}
    </>
  );
}

/** Earlier runs of this browser's playground. */
function EarlierRuns({ shown }: { shown: string | undefined }) {
  const earlier = runs.value.list.filter(({ id }) => id !== shown);
  if (earlier.length === 0) return null;
  return (
    <details class="programs">
      <summary>Earlier runs</summary>
      <ul>
        {earlier.map(({ id, at, title }) => (
          <li key={id} class="earlier">
            <a class="id" href={addressOf("", { job: id })} title={id}>
              {shortId(id)}
            </a>{" "}
            <span class="quiet">
              <Age at={at} /> {title}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function JobChoices() {
  const types = useOnce("names of job types", api.listJobTypes);
  const { jobType, language } = draft.value;
  const known = types.value.data ?? [];
  const found = known.find(({ name }) => name === jobType)?.languages ?? [];
  return (
    <>
      <Select
        label="Job type"
        class="inline"
        value={jobType}
        options={known.map(({ name }) => name)}
        onChange={(next) => changeDraft({ jobType: next })}
      />
      <Select
        label="Language"
        class="inline"
        value={language}
        options={found.map(({ name }) => name)}
        onChange={(next) => changeDraft({ language: next })}
      />
    </>
  );
}

/** What the code gets in addition to its input: arguments, standard input, time limit, files. A fork begins with its parent's. */
function Inputs({ parent }: { parent: Parent | undefined }) {
  const { args, stdin, timeout } = draft.value;
  return (
    <>
      <div class="inputs">
        <label>
          Arguments
          <input
            value={args}
            placeholder="--verbose 'a b'"
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => changeDraft({ args: event.currentTarget.value })}
          />
        </label>
        <label>
          Standard input
          <textarea
            rows={Math.min(5, stdin.split("\n", 5).length)}
            value={stdin}
            spellcheck={false}
            onInput={(event) => changeDraft({ stdin: event.currentTarget.value })}
          />
        </label>
        <label class="limit">
          Time limit, s
          <input
            type="number"
            min={1}
            value={timeout}
            placeholder={String(parent?.record.timeout ?? "default")}
            onInput={(event) => changeDraft({ timeout: event.currentTarget.value })}
          />
        </label>
      </div>
      <Files given={parent?.files ?? []} />
    </>
  );
}

type Shown = Pick<Artifact, "name" | "size_bytes"> & { expires_at?: string };

function Files({ given }: { given: Artifact[] }) {
  const problem = useSignal("");
  const picker = useRef<HTMLInputElement>(null);
  const adding = useRef<HTMLButtonElement>(null);
  const remove = (name: string): void => {
    removeFile(name);
    // The button that was pressed is gone.
    adding.current?.focus();
  };
  const add = async (files: FileList | undefined): Promise<void> => {
    problem.value = "";
    for (const file of Array.from(files ?? [])) {
      try {
        await addFile(file);
        announce(`${file.name} is uploaded`);
      } catch (error) {
        problem.value += `${file.name}: ${messageOf(error)}\n`;
      }
    }
  };
  useDrop((files) => void add(files));
  const kept = keptFiles(given, draft.value);
  const shown: Shown[] = [...kept, ...draft.value.files];
  return (
    <section aria-label="Files">
      <h2>
        Files
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={(event) => {
            const { currentTarget } = event;
            void add(currentTarget.files ?? undefined).finally(() => (currentTarget.value = ""));
          }}
        />
        <ScopedButton
          scope="run"
          ref={adding}
          class="small"
          onClick={() => picker.current?.click()}
        >
          Add files
        </ScopedButton>
        {kept.length < given.length && (
          <button class="small" onClick={() => changeDraft({ without: [] })}>
            Put back the parent's files
          </button>
        )}
        <span class="quiet hint">or drop them on the page</span>
      </h2>
      <Problem text={problem.value.trim()} />
      <ul class="files">
        {shown.map((file) => (
          <li key={file.name}>
            <span class="id">/input/{file.name}</span>
            <span
              class="quiet number"
              title={file.expires_at && `The service keeps it until ${formatTime(file.expires_at)}`}
            >
              {formatBytes(file.size_bytes)}
            </span>
            <button
              class="small end"
              aria-label={`Remove ${file.name}`}
              onClick={() => remove(file.name)}
            >
              Remove
            </button>
          </li>
        ))}
        {uploading.value.map(({ name, size }) => (
          <li key={name} class="quiet">
            <span class="id">/input/{name}</span>
            <span class="number">{formatBytes(size)}, uploading…</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const carriesFiles = ({ dataTransfer }: DragEvent): boolean =>
  dataTransfer?.types.includes("Files") ?? false;

/** Takes files that are dropped anywhere on the page. Meanwhile `body` has the class `dropping`. */
function useDrop(take: (files: FileList) => void): void {
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const ended = new AbortController();
    const mark = (isOver: boolean): void => {
      document.body.classList.toggle("dropping", isOver);
    };
    const over = (event: DragEvent): void => {
      if (!carriesFiles(event)) return;
      // Otherwise the browser leaves the page and opens the file.
      event.preventDefault();
      mark(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) mark(false);
    };
    const drop = (event: DragEvent): void => {
      mark(false);
      if (!carriesFiles(event)) return;
      event.preventDefault();
      // An editor would insert the text of the file.
      event.stopPropagation();
      latest.current(event.dataTransfer!.files);
    };
    const options = { signal: ended.signal, capture: true };
    addEventListener("dragover", over, options);
    addEventListener("dragleave", leave, options);
    addEventListener("drop", drop, options);
    return () => {
      ended.abort();
      mark(false);
    };
  }, []);
}
