import {
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
  type Tool as ListedTool,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Api } from "./api.ts";
import { listArtifacts, readArtifactTool, readResource } from "./tools/artifact-tools.ts";
import { artifactTemplate } from "./tools/artifact-uri.ts";
import type { Call, Tool } from "./tools/call.ts";
import { executeCode } from "./tools/execute-code.ts";
import { type Facts, readFacts } from "./tools/facts.ts";
import { cancelJob, getJob } from "./tools/job-tools.ts";

export const tools: readonly Tool[] = [
  executeCode,
  getJob,
  cancelJob,
  listArtifacts,
  readArtifactTool,
];

/** What a server knows about whom it serves. */
export interface Connection extends Pick<Call, "abortCancels" | "keep"> {
  api: Api;
  version: string;
  /** Metadata of the jobs that a request makes. */
  metadataOf: (requestId: string | number) => Record<string, string>;
}

/**
 * A server of the Model Context Protocol that acts through the public HTTP interface. It is made of the
 * SDK's `Server`, because its `McpServer` turns every error into a result.
 */
export function mcpServer(connection: Connection): Server {
  const { api, version } = connection;
  const server = new Server(
    { name: "airlock", title: "Airlock", version },
    {
      capabilities: { tools: {}, resources: {} },
      instructions:
        "Airlock runs Python code in isolated containers. Call execute_code; its description names the packages and limits of each job type. Code that fails is a result with its error, not an error of the call.",
    },
  );
  server.setRequestHandler("tools/list", async () => {
    const facts = await readFacts(api).catch(() => undefined);
    return { tools: tools.map((tool) => listed(tool, facts)) };
  });
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const tool = tools.find(({ name }) => name === params.name);
    if (!tool) throw invalid(`There is no tool ${params.name}.`);
    const input = tool.input.safeParse(params.arguments ?? {});
    if (!input.success) return refusedResult(z.prettifyError(input.error));
    try {
      return await tool.run(callOf(connection, context), input.data as never);
    } catch (error) {
      const wrongArguments: number = ProtocolErrorCode.InvalidParams;
      if (!(error instanceof ProtocolError) || error.code !== wrongArguments) throw error;
      return refusedResult(error.message);
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
  server.setRequestHandler("resources/read", ({ params }) => readResource(api, params.uri));
  return server;
}

function invalid(message: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}

/**
 * Wrong arguments are a result, which the model reads to correct its call. Source: Model Context Protocol, tools,
 * "Error Handling".
 */
function refusedResult(text: string) {
  return { isError: true, content: [{ type: "text" as const, text }] };
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
  const { api, abortCancels, keep, metadataOf } = connection;
  const progressToken = mcpReq._meta?.progressToken;
  const report = async (progress: number, message: string): Promise<void> =>
    mcpReq.notify({
      method: "notifications/progress",
      params: { progressToken, progress, message },
    });
  return {
    api,
    signal: mcpReq.signal,
    report: progressToken === undefined ? undefined : report,
    metadata: metadataOf(mcpReq.id),
    abortCancels,
    keep,
  };
}
