import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Problem } from "../../parts/common.tsx";
import { Editor } from "../../parts/editor.tsx";
import { ScopedButton, whyNot } from "../../parts/scoped-button.tsx";
import { useCtrlEnter } from "../../parts/use-ctrl-enter.ts";
import { lostSince, messageOf } from "../../service/client.ts";

/** Where a person types a cell. It is empty again once the cell is sent. */
export function Prompt({ onRun }: { onRun: (code: string) => Promise<void> }) {
  const code = useSignal("");
  const isSending = useSignal(false);
  const problem = useSignal("");
  /** Counts the cells: each has an editor of its own. */
  const sent = useSignal(0);
  useEffect(() => {
    if (lostSince.value === undefined) problem.value = "";
  }, [lostSince.value]);
  const isReady = code.value.trim() !== "" && !isSending.value && whyNot("run") === undefined;

  const run = async (): Promise<void> => {
    if (!isReady) return;
    isSending.value = true;
    problem.value = "";
    try {
      await onRun(code.value);
      code.value = "";
      sent.value += 1;
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isSending.value = false;
    }
  };
  useCtrlEnter(run);
  return (
    <section class="prompt" aria-label="Prompt">
      <Editor
        key={sent.value}
        class="cell"
        label="Cell"
        language="python"
        text=""
        onChange={(next) => (code.value = next)}
        isFocused
      />
      <p class="actions">
        <ScopedButton
          scope="run"
          class="primary"
          title="Ctrl+Enter"
          aria-disabled={!isReady}
          onClick={() => void run()}
        >
          Run <kbd>Ctrl ⏎</kbd>
        </ScopedButton>
        <span class="quiet hint">
          The value of the last expression is shown. Esc, then Tab leaves the editor.
        </span>
      </p>
      <Problem text={problem.value} />
    </section>
  );
}
