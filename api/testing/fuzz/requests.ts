import * as fc from "fast-check";
import {
  type Endpoint,
  type JsonSchema,
  type OpenApiDocument,
  type OpenApiParameter,
  resolve,
} from "../openapi-document.ts";
import { arbitraryOf, type Lookup } from "./arbitrary-of.ts";
import type { FuzzRequest } from "./exchange.ts";
import { damaged, nastyText } from "./nasty.ts";

/** Values of path parameters that name existing things, by parameter name. */
export type Known = Record<string, string[]>;

/** Requests to an endpoint. Most of their parts match the description, some do not. */
export function requestsTo(
  { method, path, operation }: Endpoint,
  document: OpenApiDocument,
  known: Known,
): fc.Arbitrary<FuzzRequest> {
  const lookup: Lookup = (ref) => resolve<JsonSchema>(document, { $ref: ref });
  const parameters = operation.parameters.map((told) => resolve(document, told));
  const placed = (place: string) => parameters.filter((parameter) => parameter.in === place);
  const schema = operation.requestBody?.content["application/json"]?.schema;
  const bodies = schema
    ? arbitraryOf(schema, lookup).chain((value) => damaged(JSON.stringify(value)))
    : fc.constant(undefined);

  return fc
    .record({
      pathname: pathnames(path, placed("path"), known, lookup),
      query: queries(placed("query"), lookup),
      headers: headers(placed("header")),
      body: bodies,
      type: contentTypes,
    })
    .map(({ pathname, query, headers: sent, body, type }) => ({
      method,
      path: query === "" ? pathname : `${pathname}?${query}`,
      headers: { ...sent, ...(body && { "Content-Type": type }) },
      body,
    }));
}

/** Path segments, percent-encoded. */
export const segments = nastyText.map(segmentOf);

/** Never empty. Dots are encoded twice, because a client would resolve `..` itself. */
function segmentOf(value: unknown): string {
  return encodeURIComponent(textOf(value)).replaceAll(".", "%252e") || "0";
}

const contentTypes = fc.oneof(
  { weight: 12, arbitrary: fc.constant("application/json") },
  { weight: 1, arbitrary: fc.constantFrom("text/plain", "application/xml", "json", "") },
);

/** Values that a header can have: bytes without line breaks. */
const headerValues = fc.oneof(
  fc.constantFrom("*", '"x"', 'W/"x"', "bytes=0-0", "bytes=-1", "bytes=9-1", "bytes=0-,1-", "\xff"),
  fc.string({ maxLength: 30 }).map((text) => text.replaceAll(/[^\x20-\x7e]/g, "").trim()),
  fc.constant("x".repeat(3000)),
);

function pathnames(
  path: string,
  parameters: OpenApiParameter[],
  known: Known,
  lookup: Lookup,
): fc.Arbitrary<string> {
  const values = parameters.map(({ name, schema }) =>
    fc.oneof(
      fc.constantFrom(...(known[name] ?? ["0"])),
      arbitraryOf(schema, lookup).map(segmentOf),
      segments,
    ),
  );
  return fc
    .tuple(...values)
    .map((filled) =>
      parameters.reduce((at, { name }, i) => at.replace(`{${name}}`, () => filled[i] ?? ""), path),
    );
}

function queries(parameters: OpenApiParameter[], lookup: Lookup): fc.Arbitrary<string> {
  const pair = fc.oneof(
    ...parameters.map(({ name, schema }) =>
      fc.tuple(fc.constant(name), fc.oneof(arbitraryOf(schema, lookup), nastyText)),
    ),
    fc.tuple(nastyText, nastyText),
  );
  return fc.array(pair, { maxLength: 4 }).map((pairs) => {
    const query = new URLSearchParams();
    for (const [name, value] of pairs) query.append(textOf(name), textOf(value));
    return query.toString();
  });
}

function headers(parameters: OpenApiParameter[]): fc.Arbitrary<Record<string, string>> {
  const names = fc.constantFrom(...parameters.map(({ name }) => name));
  return fc.dictionary(names, headerValues, { maxKeys: 3 });
}

function textOf(value: unknown): string {
  return (typeof value === "string" ? value : (JSON.stringify(value) ?? "")).toWellFormed();
}
