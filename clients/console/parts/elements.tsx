import { signal } from "@preact/signals";
import type { ComponentChildren, ComponentProps } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Scope } from "../../typescript/src/generated.ts";
import { executionAddress, sessionAddress } from "../model/address.ts";
import { formatAge, formatTime } from "../model/numbers.ts";
import { clock, lacksScope, messageOf } from "../service/client.ts";

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

interface Choices {
  label: string;
  value: string;
  names: string[];
  onChange: (name: string) => void;
}

/** A choice among names. It offers the value, too, if the names lack it, for example before they are loaded. */
export function Choice({ label, value, names, onChange }: Choices) {
  const shown = names.includes(value) ? names : [...names, value];
  return (
    <label class="inline">
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {shown.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

type ButtonProps = ComponentProps<"button"> & { scope: Scope };

/** Why a button does nothing; undefined if the key may do it. */
export const whyNot = (scope: Scope): string | undefined =>
  lacksScope(scope) ? `Needs an API key that has the scope ${scope}` : undefined;

/** A button for what needs a scope. With a key that lacks it, it does nothing, and its title says why; it keeps the focus. */
export function ScopedButton({ scope, ...button }: ButtonProps) {
  const why = whyNot(scope);
  const refused = { title: why, "aria-disabled": true, onClick: undefined };
  return <button {...button} {...(why !== undefined && refused)} />;
}

/** What just happened, shown for a moment at the foot of the page and read out. */
const announcement = signal("");

/** While a dialog is open, it shows the note itself: the page behind it is dimmed, and is not read out. */
export const openDialogs = signal(0);

let timer: ReturnType<typeof setTimeout> | undefined;

export function announce(text: string): void {
  announcement.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => (announcement.value = ""), 6000);
}

/** Does something that the person asked for, and says so if it cannot be done. */
export async function attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    announce(messageOf(error));
    return undefined;
  }
}

/** Puts a text on the clipboard. Browsers refuse that on plain http, other than on this machine. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copySelected(text)) {
      announce("The browser does not allow copying: select the text and copy it.");
      return;
    }
  }
  announce("Copied");
}

/** For browsers without the clipboard API. The text area is in the open dialog: outside it, nothing can be selected. */
function copySelected(text: string): boolean {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return isCopied;
}
