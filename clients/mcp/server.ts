import {
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  Server,
  type ServerContext,
  type Tool as ListedTool,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { fieldErrors } from "../../shared/wire/errors.ts";
import {
  AirlockError,
  ConnectionError,
  NotFoundError,
  ProblemError,
} from "../typescript/src/errors.ts";
import type { Problem } from "../typescript/src/generated.ts";
import { artifactTemplate } from "./results.ts";
import {
  type Call,
  cancelJob,
  closeSession,
  createSession,
  executeCode,
  type Facts,
  getJob,
  listArtifacts,
  readArtifactTool,
  readFacts,
  readResource,
  runInSession,
  type Tool,
} from "./tools.ts";

export const tools: readonly Tool[] = [
  executeCode,
  getJob,
  cancelJob,
  listArtifacts,
  readArtifactTool,
  createSession,
  runInSession,
  closeSession,
];

/** What a server knows about whom it serves. */
export interface Connection extends Pick<Call, "airlock" | "abortCancels" | "keep"> {
  version: string;
  /** Metadata of the jobs that a request makes. */
  metadataOf: (requestId: string | number) => Record<string, string>;
}

/**
 * A server of the Model Context Protocol that acts through the public HTTP interface. It is made of the
 * SDK's `Server`, because its `McpServer` turns every error into a result.
 */
export function mcpServer(connection: Connection): Server {
  const { airlock, version } = connection;
  const server = new Server(
    { name: "airlock", title: "Airlock", version },
    {
      capabilities: { tools: {}, resources: {} },
      instructions:
        "Airlock runs Python code in isolated containers. Call execute_code for a single run, or create_session and run_in_session where one step builds on the last. Their descriptions name the packages and limits of each job type. Code that fails is a result with its error, not an error of the call.",
    },
  );
  server.setRequestHandler("tools/list", async () => {
    const facts = await readFacts(airlock).catch(() => undefined);
    return { tools: tools.map((tool) => listed(tool, facts)) };
  });
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const tool = tools.find(({ name }) => name === params.name);
    if (!tool) throw noTool(params.name);
    const input = tool.input.safeParse(params.arguments ?? {});
    if (!input.success) return wrongInput(input.error);
    try {
      return await tool.run(callOf(connection, context), input.data as never);
    } catch (error) {
      if (!(error instanceof AirlockError)) throw error;
      return refusedResult(
        error.message,
        error instanceof ProblemError ? error.problem : undefined,
      );
    }
  });
  server.setRequestHandler("resources/list", () => ({ resources: [] }));
  server.setRequestHandler("resources/templates/list", () => ({
    resourceTemplates: [
      {
        name: "artifact",
        title: "File of a job",
        uriTemplate: artifactTemplate,
        description: "A file that the code of a job wrote to /output.",
      },
    ],
  }));
  server.setRequestHandler("resources/read", ({ params: { uri } }) =>
    readResource(airlock, uri).catch((error: unknown) => {
      throw asProtocolError(error, uri);
    }),
  );
  return server;
}

function noTool(name: string): ProtocolError {
  const names = tools.map((tool) => tool.name).join(", ");
  const message = `There is no tool ${name}. There are: ${names}.`;
  return new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}

/**
 * Wrong arguments and refusals give a result, which the model reads to correct its call. Programs read the problem.
 * Source: Model Context Protocol, tools, "Error Handling".
 */
function refusedResult(text: string, problem: Partial<Problem> | undefined) {
  const _meta = problem && { "airlock/problem": problem };
  return { isError: true, content: [{ type: "text" as const, text }], ...(_meta && { _meta }) };
}

function wrongInput(error: z.ZodError) {
  const errors = fieldErrors(error);
  const text = errors.map(({ path, message }) => `${path}: ${message}`).join("\n");
  return refusedResult(text, { code: "invalid_request", status: 400, errors });
}

function asProtocolError(error: unknown, uri: string): unknown {
  if (!(error instanceof AirlockError)) return error;
  if (error instanceof NotFoundError) return new ResourceNotFoundError(uri, error.message);
  const isOutage = error instanceof ConnectionError || error instanceof ProblemError;
  const code = isOutage ? ProtocolErrorCode.InternalError : ProtocolErrorCode.InvalidRequest;
  const problem = error instanceof ProblemError ? error.problem : undefined;
  return new ProtocolError(code, error.message, problem);
}

/** The format says it: its pattern would be a third of what a model reads of a tool. */
function override({ jsonSchema }: { jsonSchema: { format?: string; pattern?: string } }): void {
  if (jsonSchema.format === "uuid") delete jsonSchema.pattern;
}

function listed({ name, title, describe, input, output, isReadOnly }: Tool, facts?: Facts) {
  return {
    name,
    title,
    description: describe(facts ?? { jobTypes: [], maxTimeoutS: undefined }),
    inputSchema: z.toJSONSchema(input, { io: "input", unrepresentable: "any", override }),
    outputSchema: z.toJSONSchema(output, { unrepresentable: "any", override }),
    annotations: { title, readOnlyHint: isReadOnly, destructiveHint: false, openWorldHint: false },
  } as ListedTool;
}

function callOf(connection: Connection, { mcpReq }: ServerContext): Call {
  const { airlock, abortCancels, keep, metadataOf } = connection;
  const progressToken = mcpReq._meta?.progressToken;
  const report = async (progress: number, message: string): Promise<void> =>
    mcpReq.notify({
      method: "notifications/progress",
      params: { progressToken, progress, message },
    });
  return {
    airlock,
    signal: mcpReq.signal,
    report: progressToken === undefined ? undefined : report,
    metadata: metadataOf(mcpReq.id),
    abortCancels,
    keep,
  };
}
