import { useEffect, useRef } from "preact/hooks";

const carriesFiles = ({ dataTransfer }: DragEvent): boolean =>
  dataTransfer?.types.includes("Files") ?? false;

/** Takes files that are dropped anywhere on the page. Meanwhile `body` has the class `dropping`. */
export function useDrop(take: (files: FileList) => void): void {
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const ended = new AbortController();
    const mark = (isOver: boolean): void => {
      document.body.classList.toggle("dropping", isOver);
    };
    const over = (event: DragEvent): void => {
      if (!carriesFiles(event)) return;
      // Otherwise the browser leaves the page and opens the file.
      event.preventDefault();
      mark(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) mark(false);
    };
    const drop = (event: DragEvent): void => {
      mark(false);
      if (!carriesFiles(event)) return;
      event.preventDefault();
      // An editor would insert the text of the file.
      event.stopPropagation();
      latest.current(event.dataTransfer!.files);
    };
    const options = { signal: ended.signal, capture: true };
    addEventListener("dragover", over, options);
    addEventListener("dragleave", leave, options);
    addEventListener("drop", drop, options);
    return () => {
      ended.abort();
      mark(false);
    };
  }, []);
}
