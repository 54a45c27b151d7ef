import { useSignal } from "@preact/signals";
import { parseCsv } from "../../model/csv.ts";
import { laidOut } from "../../model/read-input.ts";
import { formatBytes, formatCount } from "../../model/time.ts";
import { type Artifact, openArtifact } from "../../service/records.ts";
import { attempt } from "../../parts/announce.ts";
import { save } from "../../parts/save.ts";
import { useFeed } from "../../service/feed.ts";

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
      {kind && open.value && <Shown id={id} artifact={artifact} kind={kind} isInput={isInput} />}
    </li>
  );
}

interface ShownProps {
  id: string;
  artifact: Artifact;
  kind: Kind;
  isInput: boolean;
}

function Shown({ id, artifact, kind, isInput }: ShownProps) {
  const feed = useFeed<{ url?: string; text?: string }>(
    `${isInput ? "input" : "file"} ${artifact.name} of ${id}`,
    async (signal) => {
      const answer = await openArtifact(id, artifact.name, isInput, signal);
      if (kind !== "picture") return { text: await beginningOf(answer) };
      return { url: await dataUrl(await answer.blob()) };
    },
    () => true,
  );
  const { data: { url, text } = {}, problem } = feed.value;
  if (problem) return <p class="problem">{problem}</p>;
  if (url) return <img src={url} alt={artifact.name} />;
  if (text === undefined) return <p class="quiet">Loading…</p>;
  if (kind === "csv") return <Table rows={parseCsv(text, shownRows + 2)} />;
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

function Table({ rows }: { rows: string[][] }) {
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
