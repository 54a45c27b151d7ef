import { signal } from "@preact/signals";
import { type Route, routeOf } from "../model/address.ts";
import { key } from "./client.ts";

const here = (): Route => routeOf(location.pathname, location.search);

/** What the address of the page says. */
export const route = signal<Route>(here());

let isBack = false;
/** Whether the page was reached by Back or Forward of the browser: then it shows what it showed before. */
export const cameBack = (): boolean => isBack;

/** Where a person was on a page. The browser's history keeps it with the page. */
interface Place {
  y: number;
  /** Address of the link that was followed. */
  link: string | undefined;
}

interface GoOptions {
  /** The new address takes the place of the present one in the history. */
  replace?: boolean;
  /** Neither the focus nor the scroll position moves. */
  stay?: boolean;
  /** Address of the link that was followed. Back returns the focus to it. */
  link?: string | undefined;
}

export function go(
  address: string,
  { replace = false, stay = replace, link }: GoOptions = {},
): void {
  isBack = false;
  // As with any link, the present address is not added to the history again.
  if (replace || address === location.pathname + location.search) {
    history.replaceState(null, "", address);
  } else {
    history.replaceState({ y: scrollY, link } satisfies Place, "");
    history.pushState(null, "", address);
  }
  route.value = here();
  if (!stay) {
    scrollTo(0, 0);
    // As after a page load, screen readers and the keyboard start at the new view.
    requestAnimationFrame(() => document.querySelector("h1")?.focus({ preventScroll: true }));
  }
}

/** A page may need some frames to become as high as it was. */
const restoreMs = 2000;

/** Restores the scroll position and the focus, once the page has them again. */
function restore({ y, link }: Place): void {
  const started = performance.now();
  const moved = (): void => {
    const found =
      link === undefined
        ? document.querySelector<HTMLElement>("h1")
        : document.querySelector<HTMLElement>(`main a[href="${CSS.escape(link)}"]`);
    const isHigh = document.documentElement.scrollHeight >= y + innerHeight;
    const isLate = performance.now() - started > restoreMs;
    if (!isLate && !(found && isHigh)) {
      requestAnimationFrame(moved);
      return;
    }
    scrollTo(0, y);
    found?.focus({ preventScroll: true });
  };
  requestAnimationFrame(moved);
}

/**
 * Links within the console change the view without loading the page. A link that is to open in a new tab is opened by
 * this page: such a tab begins with a copy of the sessionStorage, and so has the key.
 */
export function followLinks(): void {
  addEventListener("popstate", ({ state }) => {
    isBack = true;
    route.value = here();
    if (state) restore(state as Place);
  });
  document.addEventListener("click", follow);
  document.addEventListener("auxclick", follow);
}

function follow(event: MouseEvent): void {
  const link = (event.target as Element).closest("a");
  if (event.defaultPrevented || !link || link.target !== "" || link.hasAttribute("download"))
    return;
  const { origin, pathname, search } = new URL(link.href);
  if (origin !== location.origin || !/^\/console(\/|$)/.test(pathname)) return;
  const isMiddle = event.button === 1;
  const isElsewhere = isMiddle || event.ctrlKey || event.metaKey || event.shiftKey;
  if (event.altKey || event.button > 1 || (isElsewhere && key.value === "")) return;
  event.preventDefault();
  if (isElsewhere) open(link.href);
  else go(pathname + search, { link: link.getAttribute("href") ?? undefined });
}

/** Ctrl+K goes to the search field of the view: the filter of a list, or the search in output. */
export function followKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
    const field = document.querySelector<HTMLInputElement>("main input[type=search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}
