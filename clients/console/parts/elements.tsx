import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren, ComponentProps } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Scope } from "../../typescript/src/generated.ts";
import { executionAddress, sessionAddress } from "../model/address.ts";
import { formatAge, formatTime } from "../model/numbers.ts";
import { clock, lacksScope, messageOf } from "../service/client.ts";
import { route } from "../service/location.ts";

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

const linkBy =
  (addressOf: (id: string) => string) =>
  ({ id }: { id: string }) => (
    <a class="id" href={addressOf(id)} title={id}>
      {shortId(id)}
    </a>
  );
export const ExecutionLink = linkBy(executionAddress);
export const SessionLink = linkBy(sessionAddress);

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

/** The dialog above the page. It goes with its view. */
const shownDialog = signal<ComponentChildren>(undefined);

export const openDialog = (dialog: ComponentChildren): void => void (shownDialog.value = dialog);
export const closeDialog = (): void => openDialog(undefined);

/** The place of the dialog. */
export function OpenDialog() {
  useEffect(() => closeDialog, [route.value]);
  return <>{shownDialog.value}</>;
}

interface DialogProps {
  label: string;
  /** It cannot be closed, not even by Escape. */
  isHeld?: boolean;
  children: ComponentChildren;
}

export function Dialog({ label, isHeld = false, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const own = useRef(shownDialog.peek());
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
  const close = (): void => {
    if (isHeld) dialog.current?.showModal();
    // A dialog that is gone still says that it was closed: the one that took its place must stay.
    else if (shownDialog.value === own.current) closeDialog();
  };
  return (
    <dialog ref={dialog} aria-label={label} onClose={close}>
      {children}
      <Announcement />
    </dialog>
  );
}

interface Question {
  title: string;
  /** Name of the action, on its button. */
  action: string;
  text: ComponentChildren;
  work: () => Promise<unknown>;
}

/** Asks before something that cannot be undone. */
export function confirm({ title, action, text, work }: Question): void {
  openDialog(
    <Dialog label={title}>
      <form method="dialog">
        <h2>{title}</h2>
        <p>{text}</p>
        <p class="actions">
          <button class="danger" onClick={() => void attempt(work)}>
            {action}
          </button>
          {/* oxlint-disable-next-line jsx-a11y/no-autofocus -- Enter alone must not do what cannot be undone */}
          <button autofocus>Close</button>
        </p>
      </form>
    </Dialog>,
  );
}

interface FormProps {
  title: string;
  /** Name of the action, on its button. */
  action: string;
  work: (given: FormData) => Promise<unknown>;
  children: ComponentChildren;
}

/** A dialog that asks for something. If the work fails, it says why, and keeps what was typed. */
export function FormDialog({ title, action, work, children }: FormProps) {
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const submit = async (form: HTMLFormElement): Promise<void> => {
    // Done twice, it would make a second key, which is shown to nobody.
    if (isBusy.value) return;
    isBusy.value = true;
    problem.value = "";
    try {
      await work(new FormData(form));
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <Dialog label={title}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <h2>{title}</h2>
        {children}
        <Problem text={problem.value} />
        <p class="actions">
          <button class="primary" aria-disabled={isBusy.value}>
            {action}
          </button>
          <button type="button" onClick={closeDialog}>
            Close
          </button>
        </p>
      </form>
    </Dialog>
  );
}

interface SecretProps {
  title: string;
  label: string;
  secret: string;
  /** Stands above it. */
  lead?: ComponentChildren;
  children: ComponentChildren;
}

/** A dialog with something that is shown only once, to be copied. */
export function SecretDialog({ title, label, secret, lead, children }: SecretProps) {
  return (
    <Dialog label={title}>
      <form method="dialog">
        <h2>{title}</h2>
        {lead}
        <Text label={label} text={secret} isWrapped />
        {children}
        <p class="actions">
          <button type="button" onClick={() => void copy(secret)}>
            Copy
          </button>
          <button class="primary">Done</button>
        </p>
      </form>
    </Dialog>
  );
}

/** Text as it was written, which can be scrolled by keyboard. */
export function Text({
  label,
  text,
  isWrapped,
}: {
  label: string;
  text: string;
  isWrapped?: boolean;
}) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard
    <pre class={isWrapped ? "json wrapped" : "json"} tabIndex={0} aria-label={label}>
      {text}
    </pre>
  );
}

interface SelectProps {
  label: string;
  class?: string;
  /** In a form, the name of what is chosen; otherwise `value` and `onChange`. */
  name?: string;
  value?: string;
  /** Values, with a title if it differs. */
  options: readonly (string | readonly [value: string, title: string])[];
  onChange?: (value: string) => void;
}

/** A choice. It offers the value, too, if the options lack it, for example before they are loaded. */
export function Select({ label, class: ofLabel, name, value, options, onChange }: SelectProps) {
  const offered = options.map((option) =>
    typeof option === "string" ? ([option, option] as const) : option,
  );
  const isOffered = value === undefined || offered.some(([one]) => one === value);
  return (
    <label class={ofLabel}>
      {label}
      <select name={name} value={value} onChange={(event) => onChange?.(event.currentTarget.value)}>
        {[...offered, ...(isOffered ? [] : [[value, value] as const])].map(([one, title]) => (
          <option key={one} value={one}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

interface FoldProps {
  class?: string;
  isOpen?: boolean;
  summary: ComponentChildren | ((isOpen: boolean) => ComponentChildren);
  children: () => ComponentChildren;
}

/** A part that is drawn only while it is open. */
export function Fold({ class: name, isOpen: isFirstOpen = false, summary, children }: FoldProps) {
  const isOpen = useSignal(isFirstOpen);
  return (
    <details
      class={name}
      open={isOpen.value}
      onToggle={(event) => (isOpen.value = event.currentTarget.open)}
    >
      <summary>{typeof summary === "function" ? summary(isOpen.value) : summary}</summary>
      {isOpen.value && children()}
    </details>
  );
}

interface LabelsProps {
  of: Record<string, string> | null | undefined;
  /** Where a pair such as "team:blue" leads. */
  hrefOf?: (pair: string) => string;
}

/** Names with values, such as metadata. */
export function Labels({ of, hrefOf }: LabelsProps) {
  const pairs = Object.entries(of ?? {}).map(([name, value]) => {
    const text = `${name}: ${value}`;
    const shown = { class: "label", title: text, children: text };
    if (hrefOf) return <a key={name} {...shown} href={hrefOf(`${name}:${value}`)} />;
    return <span key={name} {...shown} />;
  });
  return <>{pairs}</>;
}

type ButtonProps = ComponentProps<"button"> & {
  scope: Scope;
  /** What it does, in place of `onClick`: if that fails, the person is told. */
  work?: () => Promise<unknown>;
};

/** Why a button does nothing; undefined if the key may do it. */
export const whyNot = (scope: Scope): string | undefined =>
  lacksScope(scope) ? `Needs an API key that has the scope ${scope}` : undefined;

/** A button for what needs a scope. With a key that lacks it, it does nothing, and its title says why; it keeps the focus. */
export function ScopedButton({ scope, work, ...button }: ButtonProps) {
  const why = whyNot(scope);
  const refused = { title: why, "aria-disabled": true, onClick: undefined };
  const acts = work && { onClick: () => void attempt(work) };
  return <button {...button} {...acts} {...(why !== undefined && refused)} />;
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
