import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { announcement, openDialogs } from "./announce.ts";
import { clock } from "../service/clock.ts";
import { executionAddress, sessionAddress } from "../model/address.ts";
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

export function SessionLink({ id }: { id: string }) {
  return (
    <a class="id" href={sessionAddress(id)} title={id}>
      {shortId(id)}
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

interface LoadingProps {
  feed: { data: unknown; problem: string | undefined };
}

/** Stands for what a feed shows, until its first answer. */
export function Loading({ feed: { data, problem } }: LoadingProps) {
  return data === undefined && problem === undefined ? <p class="empty loading">Loading…</p> : null;
}

/** Stands for a part of the program that was not there when it was needed. */
export function Missing({ part }: { part: string }) {
  return (
    <p class="note">
      The {part} could not be loaded: the service was gone, or has a new version.
      <button class="small" onClick={() => location.reload()}>
        Reload the page
      </button>
    </p>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** What just happened, for a moment. */
export function Announcement() {
  return (
    <p class="announcement" role="status">
      {announcement.value}
    </p>
  );
}

interface DialogProps {
  label: string;
  /** Without it, the dialog cannot be closed, not even by Escape. */
  onClose?: () => void;
  children: ComponentChildren;
}

export function Dialog({ label, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current!;
    shown.showModal();
    openDialogs.value += 1;
    return () => {
      openDialogs.value -= 1;
      // The focus goes back to where it was.
      shown.close();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-label={label}
      onClose={onClose ?? (() => dialog.current?.showModal())}
    >
      {children}
      <Announcement />
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** Name of the action, on its button. */
  action: string;
  onConfirm: () => void;
  onClose: () => void;
  children: ComponentChildren;
}

/** Asks before something that cannot be undone. */
export function Confirm({ title, action, onConfirm, onClose, children }: ConfirmProps) {
  return (
    <Dialog label={title} onClose={onClose}>
      <form method="dialog">
        <h2>{title}</h2>
        <p>{children}</p>
        <p class="actions">
          <button class="danger" onClick={onConfirm}>
            {action}
          </button>
          {/* oxlint-disable-next-line jsx-a11y/no-autofocus -- Enter alone must not do what cannot be undone */}
          <button autofocus>Close</button>
        </p>
      </form>
    </Dialog>
  );
}
