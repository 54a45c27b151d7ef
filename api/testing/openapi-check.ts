import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import {
  endpointsOf,
  type JsonSchema,
  type OpenApiDocument,
  type OpenApiHeader,
  type OpenApiResponse,
  resolve,
} from "./openapi-document.ts";

/** A complete answer of the service. */
export interface Answer {
  status: number;
  headers: Headers;
  body: string;
}

export interface OpenApiCheck {
  /** Faults of a value by its schema. */
  faultsOfValue(schema: JsonSchema, value: unknown): string[];
  describes(method: string, path: string): boolean;
  /** Faults of an answer by its description; an undescribed field is a fault. */
  faultsOfAnswer(method: string, path: string, answer: Answer): string[];
}

/** Checks values and answers against an OpenAPI document. */
export function openApiCheck(document: OpenApiDocument): OpenApiCheck {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addFormat("binary", true);
  ajv.addSchema(document, "as-told", undefined, false);
  ajv.addSchema(closed(document), "closed", undefined, false);

  const compiled = new Map<string, ValidateFunction>();
  const validatorOf = (text: string): ValidateFunction => {
    const known = compiled.get(text) ?? ajv.compile(JSON.parse(text) as JsonSchema);
    compiled.set(text, known);
    return known;
  };
  const faults = (within: string, schema: JsonSchema, value: unknown): string[] => {
    const validate = validatorOf(absolute(schema, within));
    if (validate(value)) return [];
    return (validate.errors ?? []).map(
      ({ instancePath, message, params }) =>
        `${instancePath || "(root)"} ${message} ${JSON.stringify(params)}`,
    );
  };

  const endpoints = endpointsOf(document).map((endpoint) => ({
    ...endpoint,
    pattern: patternOf(endpoint.path),
  }));

  const find = (method: string, path: string) =>
    endpoints.find((endpoint) => endpoint.method === method && endpoint.pattern.test(path));

  return {
    describes: (method, path) => find(method, path) !== undefined,
    faultsOfValue: (schema, value) => faults("as-told", schema, value),
    faultsOfAnswer(method, path, { status, headers, body }) {
      const endpoint = find(method, path);
      if (!endpoint) return [`${method} ${path} is not described`];
      const told = endpoint.operation.responses[status];
      if (!told) return [`${endpoint.operation.operationId} does not describe ${status}`];
      const response = resolve<OpenApiResponse>(document, told);
      const type = (headers.get("content-type") ?? "").split(";")[0] ?? "";
      const missing = Object.entries(response.headers ?? {})
        .filter(([name, header]) => {
          return resolve<OpenApiHeader>(document, header).required && !headers.has(name);
        })
        .map(([name]) => `header ${name} is missing`);
      if (method === "HEAD") return missing;
      if (!response.content) return [...missing, ...(body === "" ? [] : ["a body, but none told"])];
      const media = response.content[type] ?? response.content["*/*"];
      if (!media) return [...missing, `content type ${type} is not described`];
      if (!/[/+]json$/.test(type) || !response.content[type]) return missing;
      return [...missing, ...faults("closed", media.schema, JSON.parse(body))];
    },
  };
}

/** A path template as a pattern. A parameter matches several segments only if its name may have slashes. */
function patternOf(path: string): RegExp {
  const pattern = path
    .replaceAll(/[.]/g, "\\.")
    .replace("{artifact_name}", ".+")
    .replaceAll(/\{\w+\}/g, "[^/]+");
  return new RegExp(`^${pattern}$`);
}

/** A schema as text. Its references point into the document with that name. */
function absolute(schema: JsonSchema, within: string): string {
  return JSON.stringify(schema).replaceAll('"$ref":"#', `"$ref":"${within}#`);
}

/** The document with every object closed, except those that are open on purpose. */
function closed(document: OpenApiDocument): OpenApiDocument {
  return JSON.parse(JSON.stringify(document), (_key, value: unknown) => {
    const isShape =
      typeof value === "object" && value !== null && "type" in value && "properties" in value;
    return isShape && !("additionalProperties" in value)
      ? { ...value, additionalProperties: false }
      : value;
  }) as OpenApiDocument;
}
