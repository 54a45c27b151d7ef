import { useSignal } from "@preact/signals";
import { type Language, snippet, type Submission } from "../model/snippets.ts";
import { key } from "../service/key.ts";
import { copy } from "./copy.ts";

const languages: [Language, string][] = [
  ["curl", "curl"],
  ["python", "Python"],
  ["typescript", "TypeScript"],
];

/** The same submission from a program. */
export function Programs({ submission }: { submission: Submission }) {
  const chosen = useSignal<Language>("curl");
  const text = snippet(chosen.value, location.origin, submission, key.value !== "");
  return (
    <details class="programs">
      <summary>The same from a program</summary>
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
      <pre tabIndex={0} aria-label="Program">
        {text}
      </pre>
    </details>
  );
}
