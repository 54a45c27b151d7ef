import { expect } from "vitest";
import { openApiCheck, type OpenApiCheck } from "../openapi-check.ts";
import type { OpenApiDocument } from "../openapi-document.ts";
import type { Reply } from "../scripted-agent.ts";
import { apiKeys } from "./servers.ts";

const checks = new Map<string, Promise<OpenApiCheck>>();
/** By the document: most services have the same one, and compiling its schemas takes long. */
const checksOfDocuments = new Map<string, OpenApiCheck>();

/** Checks an answer against the service's own OpenAPI document. */
export async function expectDescribed(
  url: string,
  method: string,
  path: string,
  { status, headers, text }: Reply,
): Promise<void> {
  const check = await (checks.get(url) ?? read(url));
  const { pathname } = new URL(path, url);
  if (!check.describes(method, pathname)) return;
  const faults = check.faultsOfAnswer(method, pathname, { status, headers, body: text });
  expect({ method, pathname, text, faults }).toEqual({ method, pathname, text, faults: [] });
}

function read(url: string): Promise<OpenApiCheck> {
  const headers = { Authorization: `Bearer ${apiKeys[0]}` };
  const check = fetch(`${url}/openapi.json`, { headers })
    .then((response) => response.text())
    .then(checkOf);
  checks.set(url, check);
  return check;
}

function checkOf(document: string): OpenApiCheck {
  const known = checksOfDocuments.get(document);
  const check = known ?? openApiCheck(JSON.parse(document) as OpenApiDocument);
  checksOfDocuments.set(document, check);
  return check;
}
