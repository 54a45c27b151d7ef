import { signal } from "@preact/signals";
import { type Route, routeOf } from "../model/address.ts";

const here = (): Route => routeOf(location.pathname, location.search);

/** What the address of the page says. */
export const route = signal<Route>(here());

interface GoOptions {
  /** The new address takes the place of the present one in the history. */
  replace?: boolean;
  /** Neither the focus nor the scroll position moves. */
  stay?: boolean;
}

export function go(address: string, { replace = false, stay = replace }: GoOptions = {}): void {
  // As with any link, the present address is not added to the history again.
  if (replace || address === location.pathname + location.search) {
    history.replaceState(null, "", address);
  } else history.pushState(null, "", address);
  route.value = here();
  if (!stay) {
    scrollTo(0, 0);
    // As after a page load, screen readers and the keyboard start at the new view.
    requestAnimationFrame(() => document.querySelector("h1")?.focus({ preventScroll: true }));
  }
}

/** Links within the console change the view without loading the page. */
export function followLinks(): void {
  addEventListener("popstate", () => (route.value = here()));
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest("a");
    const isPlain =
      event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (
      event.defaultPrevented ||
      !link ||
      !isPlain ||
      link.target !== "" ||
      link.hasAttribute("download")
    )
      return;
    const { origin, pathname, search } = new URL(link.href);
    if (origin !== location.origin || !/^\/console(\/|$)/.test(pathname)) return;
    event.preventDefault();
    go(pathname + search);
  });
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
