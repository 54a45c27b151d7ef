import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { formatBytes, formatTime } from "../model/time.ts";
import { announce } from "../parts/announce.ts";
import { Problem } from "../parts/common.tsx";
import { useDrop } from "../parts/use-drop.ts";
import { messageOf } from "../service/client.ts";
import { addFile, changeDraft, draft, removeFile, uploading } from "../service/draft.ts";
import type { Artifact } from "../service/records.ts";

/** What the code gets beside its input: arguments, standard input, time, files. A fork has the files of its parent. */
export function Inputs({ parentFiles }: { parentFiles: Artifact[] | undefined }) {
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
            placeholder={parentFiles ? "as parent" : "default"}
            onInput={(event) => changeDraft({ timeout: event.currentTarget.value })}
          />
        </label>
      </div>
      {parentFiles ? <ParentFiles files={parentFiles} /> : <Files />}
    </>
  );
}

function ParentFiles({ files }: { files: Artifact[] }) {
  if (files.length === 0) return null;
  return (
    <section aria-label="Files of the parent">
      <h2>Files of its parent</h2>
      <ul class="files">
        {files.map(({ name, size_bytes }) => (
          <li key={name}>
            <span class="id">/input/{name}</span>
            <span class="quiet number">{formatBytes(size_bytes)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Files() {
  const problem = useSignal("");
  const picker = useRef<HTMLInputElement>(null);
  const adding = useRef<HTMLButtonElement>(null);
  const remove = (id: string): void => {
    removeFile(id);
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
  const { files } = draft.value;
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
        <button ref={adding} class="small" onClick={() => picker.current?.click()}>
          Add files
        </button>
        <span class="quiet hint">or drop them on the page</span>
      </h2>
      <Problem text={problem.value.trim()} />
      <ul class="files">
        {files.map(({ file_id, name, size_bytes, expires_at }) => (
          <li key={file_id}>
            <span class="id">/input/{name}</span>
            <span
              class="quiet number"
              title={`The service keeps it until ${formatTime(expires_at)}`}
            >
              {formatBytes(size_bytes)}
            </span>
            <button class="small end" aria-label={`Remove ${name}`} onClick={() => remove(file_id)}>
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
