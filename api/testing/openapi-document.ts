/** The parts of an OpenAPI document that the tests read. Only `resolve` resolves references. */
export interface OpenApiDocument {
  openapi: string;
  tags: { name: string; description: string }[];
  security: Record<string, string[]>[];
  paths: Record<string, Record<string, OpenApiOperation>>;
  components: Record<string, Record<string, unknown>>;
}

export interface OpenApiOperation {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  security?: Record<string, string[]>[];
  parameters: (OpenApiParameter | Ref)[];
  requestBody?: { required: boolean; content: Record<string, OpenApiMedia> };
  responses: Record<string, OpenApiResponse | Ref>;
}

export interface OpenApiParameter {
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  schema: JsonSchema;
  example?: unknown;
}

export interface OpenApiResponse {
  description: string;
  headers?: Record<string, OpenApiHeader | Ref>;
  content?: Record<string, OpenApiMedia>;
}

export interface OpenApiHeader {
  required: boolean;
  schema: JsonSchema;
}

export interface OpenApiMedia {
  schema: JsonSchema;
  example?: unknown;
  examples?: Record<string, { summary: string; value: unknown }>;
}

export type JsonSchema = Record<string, unknown>;
export type Ref = { $ref: string };

export interface Endpoint {
  method: string;
  path: string;
  operation: OpenApiOperation;
}

export function endpointsOf({ paths }: OpenApiDocument): Endpoint[] {
  return Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operation,
    })),
  );
}

/** The target of a reference into the document; any other value unchanged. */
export function resolve<T extends object>(document: OpenApiDocument, value: T | Ref): T {
  if (!("$ref" in value)) return value;
  const steps = value.$ref.replace("#/", "").split("/");
  return steps.reduce<unknown>((at, step) => (at as JsonSchema)[step], document) as T;
}

/** The examples of a body, by name. */
export function examplesOf({ example, examples = {} }: OpenApiMedia): [string, unknown][] {
  const named = Object.entries(examples).map(([name, { value }]) => [name, value] as const);
  return [...(example === undefined ? [] : [["example", example] as const]), ...named].map(
    ([name, value]) => [name, value],
  );
}
