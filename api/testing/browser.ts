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

/** Longer than the slowest machine takes to start it, or to show a page. */
const patienceMs = 120_000;

/**
 * Debian's Chromium, which `npm test` installs.
 *
 * @param localNames Names that it takes for this machine's.
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
  /** Addresses of all that the page asked for. */
  requested: string[];
  /** Uncaught exceptions, and what its console warns of: violations of its content security policy. */
  complaints: string[];
}

/** A page of its own, watched from before its first request. */
export async function openPage(browser: Browser): Promise<WatchedPage> {
  const page = await browser.newPage();
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
