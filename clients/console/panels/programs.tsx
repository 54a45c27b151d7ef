import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type Call, type Language, snippet } from "../model/snippets.ts";
import { copy } from "../parts/copy.ts";
import { key } from "../service/key.ts";

const languages: [Language, string][] = [
  ["curl", "curl"],
  ["python", "Python"],
  ["typescript", "TypeScript"],
];

interface Props {
  title: string;
  call: Call;
  /** Notes above the program. */
  children?: ComponentChildren;
}

/** A call as a program. Its text is made when it is opened. */
export function Programs({ title, call, children }: Props) {
  const isOpen = useSignal(false);
  return (
    <details class="programs" onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen.value && (
        <>
          {children}
          <Program call={call} />
        </>
      )}
    </details>
  );
}

export function Program({ call }: { call: Call }) {
  const chosen = useSignal<Language>("curl");
  const text = snippet(chosen.value, location.origin, call, key.value !== "");
  return (
    <>
      <div class="choices" role="group" aria-label="Language">
        {languages.map(([language, title]) => (
          <button
            key={language}
            class="small"
            aria-pressed={chosen.value === language}
            onClick={() => (chosen.value = language)}
          >
            as {title}
          </button>
        ))}
        <button class="small end" onClick={() => void copy(text)}>
          Copy
        </button>
      </div>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard */}
      <pre class="json" tabIndex={0} aria-label="Program">
        {text}
      </pre>
    </>
  );
}
