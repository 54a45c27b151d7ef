import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { clock } from "../service/clock.ts";
import { executionAddress } from "../model/address.ts";
import { formatAge, formatTime } from "../model/time.ts";

interface StatusProps {
  status: string;
  /** `late`: it takes longer than it should. */
  tone?: "late" | undefined;
}

/** A state by colour and word. */
export function Status({ status, tone }: StatusProps) {
  const names = ["status", status.replaceAll(/\W/g, "-"), tone].filter(Boolean);
  return <span class={names.join(" ")}>{status.replace("_", " ")}</span>;
}

/** How long ago; the exact time when pointed at. */
export function Age({ at }: { at: string }) {
  return (
    <time dateTime={at} title={formatTime(at)}>
      {formatAge(at, clock.value)}
    </time>
  );
}

/** Ids begin with their time: their ends tell them apart. */
export const shortId = (id: string): string => `…${id.slice(-8)}`;

export function ExecutionLink({ id, isWhole = false }: { id: string; isWhole?: boolean }) {
  return (
    <a class="id" href={executionAddress(id)} title={id}>
      {isWhole ? id : shortId(id)}
    </a>
  );
}

interface HeadingProps {
  title: string;
  /** Title of the tab, if it differs: it can show the state of a run to a person in another tab. */
  tabTitle?: string | undefined;
  children?: ComponentChildren;
}

/** The head of a view: its name, and what can be done. It also names the tab. */
export function Heading({ title, tabTitle = title, children }: HeadingProps) {
  useEffect(() => {
    document.title = `${tabTitle} – Airlock`;
  }, [tabTitle]);
  return (
    <header class="heading">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
    </header>
  );
}

export function Problem({ text }: { text: string | undefined }) {
  return text === undefined || text === "" ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

interface DialogProps {
  label: string;
  /** Without it, the dialog cannot be closed, not even by Escape. */
  onClose?: () => void;
  children: ComponentChildren;
}

export function Dialog({ label, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      aria-label={label}
      onClose={onClose ?? (() => dialog.current?.showModal())}
    >
      {children}
    </dialog>
  );
}
