/** A test that a page names as `file`: title. */
export interface NamedTest {
  file: string;
  title: string;
}

/** The tests that a page's tables name, as `` `file`: title · `file`: title ``. */
export function namedTests(page: string): NamedTest[] {
  return [...page.matchAll(/`([\w/.-]+\.ts)`: (.+?)(?= · | \|\n)/g)].map(
    ([, file = "", title = ""]) => ({ file, title }),
  );
}

/** Whether a file has a string that is this title; "…" in the title stands for anything on its line. */
export function hasTitle(text: string, title: string): boolean {
  const parts = title.split("…").map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`["\`]${parts.join(".*")}["\`]`).test(text);
}
