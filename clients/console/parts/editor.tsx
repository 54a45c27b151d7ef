import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { CodeEditor } from "./code-mirror.ts";
import { Missing } from "./elements.tsx";

interface Props {
  label: string;
  language: "python" | "json" | "text";
  text: string;
  onChange?: (text: string) => void;
  failedLine?: number | undefined;
  class?: string;
  isFocused?: boolean;
}

let last: Promise<void> = Promise.resolve();

/** Makes editors one after the other, each in a task of its own: making several in one task blocks the page. */
function inTurn(make: () => void): void {
  last = last.then(
    () =>
      new Promise((resolve) => {
        setTimeout(() => {
          resolve();
          make();
        });
      }),
  );
}

/** Code to read or, with `onChange`, to write; then `text` is what it begins with. The text is there before the editor's program is. */
export function Editor(props: Props) {
  const { label, language, text, onChange, failedLine, isFocused } = props;
  const isMissing = useSignal(false);
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<CodeEditor | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    let isClosed = false;
    const open = ({ openEditor }: typeof import("./code-mirror.ts")): void => {
      if (isClosed || !host.current) return;
      const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
      const opened = openEditor(root, {
        label,
        language,
        text: latest.current.text,
        isReadOnly: onChange === undefined,
        onChange: (next) => latest.current.onChange?.(next),
      });
      opened.markLine(latest.current.failedLine);
      if (isFocused) opened.focus();
      editor.current = opened;
    };
    import("./code-mirror.ts").then(
      (program) => inTurn(() => open(program)),
      () => (isMissing.value = true),
    );
    return () => {
      isClosed = true;
      editor.current?.close();
    };
  }, []);
  // The user types ahead of rendering: their text is never replaced.
  useEffect(() => {
    if (!onChange) editor.current?.setText(text);
  }, [text]);
  useEffect(() => editor.current?.markLine(failedLine), [failedLine]);

  return (
    <>
      {isMissing.value && <Missing part="editor" />}
      <div class={`editor ${props.class ?? ""}`} ref={host}>
        <pre>{text}</pre>
      </div>
    </>
  );
}

/** Calls `act` for Ctrl+Enter or Cmd+Enter anywhere on the page, before an editor sees the key. */
export function useCtrlEnter(act: () => Promise<void>): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void act();
    };
    addEventListener("keydown", onKey, { capture: true });
    return () => removeEventListener("keydown", onKey, { capture: true });
  });
}
