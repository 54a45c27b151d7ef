import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";
import type { Config } from "../../shared/config/config.ts";
import { createApp } from "../app.ts";
import { database } from "../store/database.ts";
import { ScriptedAgent } from "./scripted-agent.ts";
import { openIn, openTempStore, type TempStore, testDeps } from "./temp-store.ts";

/** The store of the test that runs. */
export let store: TempStore;

/** Gives each test of a file a store of its own. */
export function useStore(before = beforeEach, after = afterEach): void {
  before(async () => {
    store = await openTempStore();
  });
  after(() => {
    opened.splice(0).forEach((client) => client.close());
    store.close();
  });
}

/** The same for all tests of a file together. */
export function useOneStore(): void {
  useStore(beforeAll, afterAll);
}

const opened: { close(): void }[] = [];
const token = "a-token-of-16-characters";

/** One more API process on the store, with an agent of its own. */
export async function startProcess(now: () => number, config: Partial<Config>) {
  const client = await openIn(store.folder);
  opened.push(client);
  const own = { agent_tokens: [token], ...config };
  const deps = testDeps(database(client), store.folder, now, own);
  const app = createApp(deps);
  return { deps, app, agent: new ScriptedAgent(app, token) };
}
