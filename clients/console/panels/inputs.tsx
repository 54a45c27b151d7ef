import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { formatBytes, formatTime } from "../model/time.ts";
import { announce } from "../parts/announce.ts";
import { Problem } from "../parts/common.tsx";
import { ScopedButton } from "../parts/scoped-button.tsx";
import { useDrop } from "../parts/use-drop.ts";
import { messageOf } from "../service/client.ts";
import { addFile, changeDraft, draft, keptFiles, removeFile, uploading } from "../service/draft.ts";
import type { Artifact } from "../service/records.ts";
import type { Parent } from "../service/sendable.ts";

/** What the code gets in addition to its input: arguments, standard input, time limit, files. A fork begins with its parent's. */
export function Inputs({ parent }: { parent: Parent | undefined }) {
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
