import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type Call, curl } from "../../model/snippets.ts";
import { copy } from "../../parts/copy.ts";
import { key } from "../../service/key.ts";

interface Props {
  title: string;
  call: Call;
  /** Notes above the command. */
  children?: ComponentChildren;
}

/** A call as a shell command. Its text is made when it is opened. */
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
  const text = curl(location.origin, call, key.value !== "");
  return (
    <>
      <div class="choices">
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
