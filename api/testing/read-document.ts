import type { Config } from "../../shared/config/config.ts";
import { createApp } from "../app.ts";
import type { OpenApiDocument } from "./openapi-document.ts";
import { openTempStore, testDeps } from "./temp-store.ts";

/** What `GET /openapi.json` answers with this configuration. */
export async function readDocument(config: Partial<Config> = {}): Promise<OpenApiDocument> {
  const store = await openTempStore();
  try {
    const app = createApp(testDeps(store.db, store.folder, Date.now, config));
    const headers = { "X-API-Key": config.api_keys?.[0] ?? "" };
    return (await (await app.request("/openapi.json", { headers })).json()) as OpenApiDocument;
  } finally {
    store.close();
  }
}
