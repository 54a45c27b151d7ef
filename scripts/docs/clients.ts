import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateSource } from "oazapfts";
import {
  endpointsOf,
  type OpenApiDocument,
  type OpenApiOperation,
} from "../../api/testing/openapi-document.ts";
import { readDocument } from "../../api/testing/temp-store.ts";

type SchemaOfFields = { properties?: Record<string, { enum?: unknown }> };

/**
 * The OpenAPI document as the clients are made from it: without what they handle themselves
 * (refusals, correlation ids), and without the names of a service's own job types.
 */
export async function clientDocument(): Promise<OpenApiDocument> {
  const document = await readDocument();
  for (const { operation } of endpointsOf(document)) narrow(operation);
  for (const schema of Object.values(document.components["schemas"] ?? {})) {
    delete (schema as SchemaOfFields).properties?.["job_type"]?.enum;
  }
  return document;
}

function narrow(operation: OpenApiOperation): void {
  operation.parameters = operation.parameters.filter((parameter) => !("$ref" in parameter));
  operation.responses = Object.fromEntries(
    Object.entries(operation.responses).filter(([status]) => Number(status) < 300),
  );
}

/** What scripts/run makes: the text of each file of the clients that is not in git. */
export async function generatedFiles(document: OpenApiDocument): Promise<Record<string, string>> {
  return {
    "clients/typescript/src/generated.ts": await typescriptText(document),
    "clients/python/src/airlock/types.py": pythonText(document),
    "clients/python/src/airlock/problems.py": pythonProblemsText(document),
  };
}

/** Types and operations of the TypeScript client. */
async function typescriptText(document: OpenApiDocument): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-clients-"));
  const file = join(folder, "openapi.json");
  writeFileSync(file, JSON.stringify(document));
  try {
    const text = await generateSource(file, {
      argumentStyle: "object",
      allSchemas: true,
      unionUndefined: true,
      useUnknown: true,
    });
    return `// Written by scripts/run. It does not compile with exactOptionalPropertyTypes.\n// @ts-nocheck\n${text}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
}

const head = `"""What crosses the wire. Written by scripts/run from the OpenAPI document."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, TypedDict, Union

from .record import Record, Shown
`;

/**
 * The schemas of the document as types of Python 3.9, which has no `NotRequired`. What requests bring is a
 * TypedDict. So are lists, because the attributes `items` and `keys` are methods of dict. All other schemas are Records.
 */
function pythonText({ components, paths }: OpenApiDocument): string {
  const asked = namesInRequests({ components, paths });
  const schemas = Object.entries(components["schemas"] as Record<string, Schema>);
  const isDict = (name: string, properties: object = {}) =>
    asked.has(name) || "items" in properties || "keys" in properties;
  const written = new Map<string, string>();
  const isRecord = ([, { properties }]: [string, Schema]) => properties !== undefined;
  // The value of an alias is evaluated: what it names comes before it.
  const [aliases, records] = [schemas.filter((s) => !isRecord(s)), schemas.filter(isRecord)];
  const all = schemas.flatMap(([name, { properties, required }]) =>
    isDict(name, properties) && isMixed(properties, required) ? [name, `${name}Optional`] : [name],
  );
  return [
    head,
    `__all__ = [\n${inLines(all)}]\n`,
    ...aliases.map(([name, schema]) => `${name} = ${typeOf(schema, true)}\n`),
    ...records.flatMap(([name, schema]) =>
      isDict(name, schema.properties)
        ? dictText(name, schema, written)
        : [recordText(name, schema)],
    ),
  ].join("\n");
}

/** A class for each code of a refusal. */
function pythonProblemsText({ components }: OpenApiDocument): string {
  const { enum: codes = [] } = components["schemas"]!["ProblemCode"] as { enum?: string[] };
  const names = codes.map((code) => `${pascalCase(code)}Error`);
  return [
    `"""A class for each problem code. Written by scripts/run from the OpenAPI document."""\n`,
    `from typing import Dict, Type\n\nfrom .errors import ProblemError\nfrom .types import ProblemCode\n`,
    `__all__ = [\n${inLines([...names, "problem_classes"])}]\n`,
    ...names.map((name) => `class ${name}(ProblemError): ...`),
    "\n\nproblem_classes: Dict[ProblemCode, Type[ProblemError]] = {",
    ...codes.map((code, n) => `    "${code}": ${names[n]!},`),
    "}\n",
  ].join("\n");
}

/** Names of a list, as many in a line as fit. */
function inLines(names: string[]): string {
  const lines = [""];
  for (const name of names) {
    if (lines.at(-1)!.length + name.length > 90) lines.push("");
    lines.push(`${lines.pop()} "${name}",`);
  }
  return lines.map((line) => `   ${line}\n`).join("");
}

function pascalCase(name: string): string {
  return name.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** What a method takes by its place; the other fields are keyword arguments. */
const hasPlace = (field: string, required: string[]): boolean =>
  required.includes(field) || field === "code";

function isMixed(properties: object = {}, required: string[] = []): boolean {
  const fields = Object.keys(properties);
  return new Set(fields.map((field) => hasPlace(field, required))).size === 2;
}

/** Names of the schemas that the bodies of requests have, those within others included. */
function namesInRequests({ components, paths }: Pick<OpenApiDocument, "components" | "paths">) {
  const operations = Object.values(paths).flatMap((path) => Object.values(path));
  const open = [operations.map(({ requestBody }) => requestBody)] as unknown[];
  const names = new Set<string>();
  for (const part of open) {
    for (const [, name = ""] of JSON.stringify(part).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (!names.has(name)) open.push(components["schemas"]![name]);
      names.add(name);
    }
  }
  return names;
}

/** A field that may be missing. As an attribute, it is then None. */
function recordText(name: string, { properties = {}, required = [], description }: Schema): string {
  const about = description === undefined ? "" : `    """${description}"""\n\n`;
  const fields = Object.entries(properties).map(([field, schema]): [string, Schema] =>
    required.includes(field) ? [field, schema] : [field, { anyOf: [schema, { type: "null" }] }],
  );
  const base = name === "ResultItem" ? "Shown" : "Record";
  return `\nclass ${name}(${base}):\n${about}${fields.map((field) => fieldText(field)).join("")}`;
}

/**
 * Fields that may be missing are in a class of their own, which is also the type of keyword arguments.
 *
 * @param written Names of classes by their fields: one with the same fields is based on the first.
 */
function dictText(name: string, schema: Schema, written: Map<string, string>): string[] {
  const { properties = {}, required = [], description } = schema;
  const [given, optional] = [true, false].map((isGiven) =>
    Object.entries(properties)
      .filter(([field]) => hasPlace(field, required) === isGiven)
      .map((field) => fieldText(field, ownTypes[field[0]]))
      .join(""),
  ) as [string, string];
  const about = description === undefined ? "" : `    """${description}"""\n\n`;
  const classOf = (own: string, base: string, fields: string) =>
    `\nclass ${own}(${base}):\n${own === name ? about : ""}${fields || "    pass\n"}`;
  if (optional === "") return [classOf(name, "TypedDict", given)];
  const own = given === "" ? name : `${name}Optional`;
  const same = written.get(optional);
  written.set(optional, own);
  const first = same ? classOf(own, same, "") : classOf(own, "TypedDict, total=False", optional);
  const total = required.length === 0 ? ", total=False" : "";
  return given === "" ? [first] : [first, classOf(name, `${own}${total}`, given)];
}

/** Types of fields in requests that the client makes from more than JSON. */
const ownTypes: Record<string, string> = {
  tools: "Sequence[Union[Tool, Callable[..., Any]]]",
};

function fieldText([field, schema]: [string, Schema], own?: string): string {
  const about = (schema.description ?? schema.anyOf?.[0]?.description)?.replaceAll("\n", " ");
  return `${about === undefined ? "" : `    #: ${about}\n`}    ${field}: ${own ?? typeOf(schema, false)}\n`;
}

/** @param isValue Whether Python evaluates it: then names are quoted. */
function typeOf(schema: Schema, isValue: boolean): string {
  const { $ref, type, items, additionalProperties } = schema;
  const choices = schema.anyOf ?? schema.oneOf;
  if ($ref !== undefined) return isValue ? `"${nameOf($ref)}"` : nameOf($ref);
  if (schema.const !== undefined) return `Literal[${literal(schema.const)}]`;
  if (schema.enum) return `Literal[${schema.enum.map(literal).join(", ")}]`;
  if (choices) return unionOf(choices, isValue);
  if (Array.isArray(type)) {
    return unionOf(
      type.map((one) => ({ ...schema, type: one })),
      isValue,
    );
  }
  if (type === "array") return `List[${items ? typeOf(items, isValue) : "Any"}]`;
  if (type === "object") {
    const values = typeof additionalProperties === "object" ? additionalProperties : {};
    return `Dict[str, ${typeOf(values, isValue)}]`;
  }
  return { string: "str", integer: "int", number: "float", boolean: "bool" }[type ?? ""] ?? "Any";
}

function unionOf(choices: Schema[], isValue: boolean): string {
  const others = choices.filter(({ type }) => type !== "null");
  const types = others.map((one) => typeOf(one, isValue));
  const one = types.length === 1 ? types[0]! : `Union[${types.join(", ")}]`;
  const isOptional = others.length < choices.length && !one.startsWith("Optional[");
  return isOptional ? `Optional[${one}]` : one;
}

const nameOf = (ref: string): string => ref.replace(/.*\//, "");

function literal(value: unknown): string {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value === null) return "None";
  return JSON.stringify(value);
}
