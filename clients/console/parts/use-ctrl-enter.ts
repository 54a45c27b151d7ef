import { useEffect } from "preact/hooks";

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
