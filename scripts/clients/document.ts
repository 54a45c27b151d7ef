import {
  endpointsOf,
  type OpenApiDocument,
  type OpenApiOperation,
} from "../../api/testing/openapi-document.ts";
import { readDocument } from "../../api/testing/read-document.ts";

type Schema = { properties?: Record<string, { enum?: unknown }> };

/**
 * The OpenAPI document as the clients are made from it: without what they handle themselves
 * (refusals, correlation ids), and without the names of a service's own job types.
 */
export async function clientDocument(): Promise<OpenApiDocument> {
  const document = await readDocument();
  for (const { operation } of endpointsOf(document)) narrow(operation);
  for (const schema of Object.values(document.components["schemas"] ?? {})) {
    delete (schema as Schema).properties?.["job_type"]?.enum;
  }
  return document;
}

function narrow(operation: OpenApiOperation): void {
  operation.parameters = operation.parameters.filter((parameter) => !("$ref" in parameter));
  operation.responses = Object.fromEntries(
    Object.entries(operation.responses).filter(([status]) => Number(status) < 300),
  );
}
