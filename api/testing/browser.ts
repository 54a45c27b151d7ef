import { type Browser, chromium, type Page } from "playwright-core";
import { CHROMIUM } from "../../scripts/setup/tools.ts";

const flags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Longer than the slowest machine needs to start it or to show a page. */
const patienceMs = 120_000;

/**
 * Debian's Chromium, which `npm test` installs.
 *
 * @param localNames Names that it resolves to this machine.
 */
export function openBrowser(localNames: string[] = []): Promise<Browser> {
  const rules = localNames.map((name) => `MAP ${name} 127.0.0.1`).join(",");
  return chromium.launch({
    executablePath: CHROMIUM,
    args: [...flags, `--host-resolver-rules=${rules}`],
    timeout: patienceMs,
  });
}

export interface WatchedPage {
  page: Page;
  /** Addresses of all requests of the page. */
  requested: string[];
  /** Uncaught exceptions and warnings of the console, for example violations of the content security policy. */
  complaints: string[];
}

/** Opens a new page that is watched from before its first request. */
export async function openPage(browser: Browser): Promise<WatchedPage> {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(patienceMs);
  const requested: string[] = [];
  const complaints: string[] = [];
  page.on("request", (request) => requested.push(request.url()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  return { page, requested, complaints };
}
