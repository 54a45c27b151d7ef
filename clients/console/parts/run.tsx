import { type ReadonlySignal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type { Compilation, ResultItem } from "../../typescript/src/generated.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatThings,
  withLocalTimes,
} from "../model/numbers.ts";
import { parseCsv, type Timed, timesOf } from "../model/record.ts";
import { type Call, curl, laidOut } from "../model/submission.ts";
import { clock, key, serviceNow } from "../service/client.ts";
import { useFeed, useOnce } from "../service/feed.ts";
import { follow, type Followed, type ShownToolCall, toolCallReader } from "../service/follow.ts";
import { type Artifact, isEnded, openArtifact } from "../service/records.ts";
import { attempt, copy, ExecutionLink, Fold, Problem, Status, Text } from "./elements.tsx";
import { OutputView, save } from "./output.tsx";

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
      {said !== "" && <Text label="Output of the compiler" text={said} />}
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
          <Text label="Result" text={JSON.stringify(record.output, null, 2)} />
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

interface Following {
  followed: Followed | undefined;
  problem: string | undefined;
}

/** Follows the job with this id, if there is one. */
export function useFollowed(id: string | undefined): ReadonlySignal<Following> {
  const state = useSignal<Following>({ followed: undefined, problem: undefined });
  useEffect(() => {
    state.value = { followed: undefined, problem: undefined };
    if (id === undefined) return undefined;
    const ended = new AbortController();
    follow(id, ended.signal, (followed) => {
      state.value = { followed, problem: undefined };
    }).catch((error: unknown) => {
      if (!ended.signal.aborted)
        state.value = { followed: undefined, problem: (error as Error).message };
    });
    // How long it runs is counted on the page.
    const ticking = setInterval(() => {
      if (!document.hidden && !isEnded(state.value.followed?.record)) clock.value = serviceNow();
    }, 1000);
    return () => {
      ended.abort();
      clearInterval(ticking);
    };
  }, [id]);
  return state;
}

const pictures = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Beside the page's own policy: without it, a frame could ask the service for pictures. */
const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:">`;

/** What the code showed, in its order. It comes from the code: it must not run in the page. */
function Shown({ items, isCut }: { items: ResultItem[]; isCut: boolean }) {
  return (
    <section aria-label="Results">
      <h2>Results</h2>
      {items.map((item) => (
        <div key={item.number} class={item.main ? "shown main" : "shown"}>
          <Item {...item} />
        </div>
      ))}
      {isCut && (
        <p class="quiet">The code showed more than the service keeps: something is left out.</p>
      )}
    </section>
  );
}

/** As a picture loads no script; as a frame with an empty sandbox runs none. */
function Item({ number, data }: ResultItem) {
  const text = data["text/plain"] ?? "";
  const name = `Result ${number}`;
  const picture = pictures.find((type) => data[type] !== undefined);
  if (picture !== undefined)
    return <img src={`data:${picture};base64,${data[picture]!.replaceAll("\n", "")}`} alt={text} />;
  const svg = data["image/svg+xml"];
  if (svg !== undefined)
    return <img src={`data:image/svg+xml,${encodeURIComponent(svg)}`} alt={text} />;
  const html = data["text/html"];
  if (html !== undefined)
    return <iframe sandbox="" srcdoc={policy + html} title={name} loading="lazy" />;
  return <Text label={name} text={data["text/markdown"] ?? text} />;
}

/** What is shown here; anything else is for download only. */
type Kind = "picture" | "text" | "json" | "csv";
const mostPictureBytes = 40 * 1024 * 1024;
/** This much of a longer text is fetched. */
const mostFetched = 2 * 1024 * 1024;
const shownRows = 100;
const shownCharacters = 200_000;

function kindOf({ content_type, name, size_bytes }: Artifact): Kind | undefined {
  if (/^image\/(png|jpeg|gif|webp|avif|svg\+xml)\b/.test(content_type)) {
    return size_bytes <= mostPictureBytes ? "picture" : undefined;
  }
  if (/^text\/csv\b|tab-separated/.test(content_type)) return "csv";
  if (/^application\/(.*\+)?json\b/.test(content_type)) return "json";
  const isText =
    /^text\/|^application\/(.*\+)?(xml|yaml|toml|sql|x-sh|x-ndjson)\b/.test(content_type) ||
    /\.(log|txt|md|py|m?js|ts|css|ya?ml|toml|jsonl|ndjson|cfg|env)$/.test(name);
  return isText ? "text" : undefined;
}

async function beginningOf({ body }: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  // Leaving the loop ends the request.
  for await (const bytes of body ?? []) {
    text += decoder.decode(bytes, { stream: true });
    if (text.length >= mostFetched) return text.slice(0, mostFetched);
  }
  return text + decoder.decode();
}

/** A `data:` address, which has no origin: a person may open it, and an SVG may have scripts. */
async function dataUrl(blob: Blob): Promise<string> {
  const reader = new FileReader();
  const read = new Promise((resolve, reject) => {
    reader.addEventListener("load", resolve);
    reader.addEventListener("error", () => reject(reader.error!));
  });
  reader.readAsDataURL(blob);
  await read;
  return reader.result as string;
}

interface ArtifactsProps {
  id: string;
  artifacts: Artifact[];
  /** Whether it was given them; otherwise it wrote them. */
  isInput?: boolean;
}

/** The files of an execution: pictures, text, JSON and tables are shown, all can be downloaded. */
export function Artifacts({ id, artifacts, isInput = false }: ArtifactsProps) {
  return (
    <ul class="artifacts">
      {artifacts.map((artifact) => (
        <ArtifactItem
          key={artifact.sha256 + artifact.name}
          id={id}
          artifact={artifact}
          isOpen={!isInput && artifacts.length <= 4}
          isInput={isInput}
        />
      ))}
    </ul>
  );
}

interface ItemProps {
  id: string;
  artifact: Artifact;
  isOpen: boolean;
  isInput: boolean;
}

function ArtifactItem({ id, artifact, isOpen, isInput }: ItemProps) {
  const kind = kindOf(artifact);
  const open = useSignal(isOpen);
  const { name, size_bytes, content_type } = artifact;
  const download = async (): Promise<void> =>
    save(await (await openArtifact(id, name, isInput)).blob(), name.replace(/.*\//, ""));
  return (
    <li>
      <div class="artifact-bar">
        {kind ? (
          <button
            class="plain"
            aria-expanded={open.value}
            onClick={() => (open.value = !open.value)}
          >
            {name}
          </button>
        ) : (
          <span class="name">{name}</span>
        )}
        <span class="quiet number">
          {formatBytes(size_bytes)}, {content_type}
        </span>
        <button
          class="small end"
          aria-label={`Download ${name}`}
          onClick={() => void attempt(download)}
        >
          Download
        </button>
      </div>
      {kind && open.value && (
        <ShownArtifact id={id} artifact={artifact} kind={kind} isInput={isInput} />
      )}
    </li>
  );
}

interface ShownArtifactProps {
  id: string;
  artifact: Artifact;
  kind: Kind;
  isInput: boolean;
}

function ShownArtifact({ id, artifact, kind, isInput }: ShownArtifactProps) {
  const feed = useOnce<{ url?: string; text?: string }>(
    `${isInput ? "input" : "file"} ${artifact.name} of ${id}`,
    async ({ signal }) => {
      const answer = await openArtifact(id, artifact.name, isInput, signal);
      if (kind !== "picture") return { text: await beginningOf(answer) };
      return { url: await dataUrl(await answer.blob()) };
    },
  );
  const { data: { url, text } = {}, problem } = feed.value;
  if (problem) return <p class="problem">{problem}</p>;
  if (url) return <img src={url} alt={artifact.name} />;
  if (text === undefined) return <p class="quiet">Loading…</p>;
  if (kind === "csv") return <CsvTable rows={parseCsv(text, shownRows + 2)} />;
  const whole = kind === "json" ? laidOut(text) : text;
  return (
    <>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard */}
      <pre tabIndex={0} aria-label={artifact.name}>
        {whole.slice(0, shownCharacters)}
      </pre>
      {whole.length > shownCharacters && (
        <p class="quiet">
          The first {formatCount(shownCharacters)} characters. Download has the rest.
        </p>
      )}
    </>
  );
}

function CsvTable({ rows }: { rows: string[][] }) {
  const [head = [], ...body] = rows;
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard
    <div class="table-box" tabIndex={0} role="region" aria-label="Table">
      <table class="data">
        <thead>
          <tr>
            {head.map((cell) => (
              <th scope="col">{cell}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {body.slice(0, shownRows).map((row) => (
            <tr>
              {row.map((cell) => (
                <td class={cell !== "" && !Number.isNaN(Number(cell)) ? "number" : ""}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {body.length > shownRows && (
        <p class="quiet">The first {shownRows} rows. Download has the rest.</p>
      )}
    </div>
  );
}

/** While the code runs, answers come, which no event brings. */
const runningMs = 2000;
/** So many are open from the start. */
const mostOpen = 3;

/** The calls of the caller's functions that the code has made. Names and arguments are what the code says. */
function ToolCalls({ followed }: { followed: Followed }) {
  const { id, record, calls: live } = followed;
  const read = useMemo(() => toolCallReader(id), [id]);
  const feed = useFeed(`tool calls of ${id}`, read, runningMs, (data) => data.isEnded);
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
        <ToolCall key={call.number} call={call} without={without} opens={at < mostOpen} />
      ))}
    </section>
  );
}

interface ToolCallProps {
  call: ShownToolCall;
  without: string;
  opens: boolean;
}

function ToolCall({ call: { number, name, given, answer }, without, opens }: ToolCallProps) {
  const state = answer === undefined ? without : answer.isError ? "failed" : "answered";
  const summary = (isOpen: boolean) => (
    <>
      <Status status={state} /> <code class="strong">{name}</code>
      {!isOpen && <bdi class="quiet">{given.replaceAll(/\s+/g, " ").slice(0, 200)}</bdi>}
    </>
  );
  return (
    <Fold isOpen={opens} summary={summary}>
      {() => (
        <>
          <Text label={`Arguments of call ${number}`} text={given} isWrapped />
          {answer && (
            <Text
              label={`${answer.isError ? "Error" : "Answer"} of call ${number}`}
              text={answer.text}
              isWrapped
            />
          )}
        </>
      )}
    </Fold>
  );
}

interface ProgramsProps {
  title: string;
  call: Call;
  /** Notes above the command. */
  children?: ComponentChildren;
}

/** A call as a shell command. Its text is made when it is opened. */
export function Programs({ title, call, children }: ProgramsProps) {
  return (
    <Fold class="programs" summary={title}>
      {() => (
        <>
          {children}
          <Program call={call} />
        </>
      )}
    </Fold>
  );
}

export function Program({ call }: { call: Call }) {
  const text = curl(location.origin, call, key.value !== "");
  return (
    <>
      <div class="choices">
        <button class="small end" onClick={() => void copy(text)}>
          Copy
        </button>
      </div>
      <Text label="Program" text={text} />
    </>
  );
}
