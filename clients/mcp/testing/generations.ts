import {
  Client as NewClient,
  StreamableHTTPClientTransport as NewHttp,
} from "@modelcontextprotocol/client";
import { StdioClientTransport as NewStdio } from "@modelcontextprotocol/client/stdio";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

/** What both generations of the official client can do. */
export interface McpClient {
  revision: string | undefined;
  listTools(): Promise<{ name: string; description?: string | undefined }[]>;
  call(name: string, input: object, options?: CallOptions): Promise<ToolResult>;
  read(uri: string): Promise<{ contents: { text?: string; blob?: string }[] }>;
  close(): Promise<void>;
}

interface CallOptions {
  signal?: AbortSignal;
  onprogress?: (progress: { progress: number; message?: string | undefined }) => void;
}

interface ToolResult {
  content: { type: string; [field: string]: unknown }[];
  structuredContent?: Record<string, unknown>;
  isError?: boolean;
  _meta?: Record<string, unknown>;
}

interface HttpTarget {
  url: string;
  key?: string;
  fetch?: typeof fetch;
}

interface Command {
  command: string;
  args: string[];
  env: Record<string, string>;
}

const info = { name: "test", version: "1" };

async function oldClient(transport: OldHttp | OldStdio): Promise<McpClient> {
  const client = new OldClient(info);
  await client.connect(transport);
  return {
    revision: undefined,
    listTools: async () => (await client.listTools()).tools,
    call: async (name, input, options) =>
      (await client.callTool({ name, arguments: { ...input } }, undefined, options)) as ToolResult,
    read: async (uri) => client.readResource({ uri }),
    close: () => client.close(),
  };
}

async function newClient(transport: NewHttp | NewStdio): Promise<McpClient> {
  const client = new NewClient(info, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(transport);
  return {
    revision: client.getNegotiatedProtocolVersion(),
    listTools: async () => (await client.listTools()).tools,
    call: async (name, input, options) =>
      (await client.callTool({ name, arguments: { ...input } }, options)) as ToolResult,
    read: async (uri) => client.readResource({ uri }),
    close: () => client.close(),
  };
}

function httpOptions({ key, fetch }: HttpTarget) {
  const requestInit = key === undefined ? {} : { headers: { Authorization: `Bearer ${key}` } };
  return { requestInit, ...(fetch && { fetch }) };
}

/** The official clients of 2025 and of the revision 2026-07-28. */
export const generations = {
  "sdk 1": {
    http: (target: HttpTarget) =>
      oldClient(new OldHttp(new URL(`${target.url}/mcp`), httpOptions(target))),
    stdio: (command: Command) => oldClient(new OldStdio(command)),
  },
  "client 2": {
    http: (target: HttpTarget) =>
      newClient(new NewHttp(new URL(`${target.url}/mcp`), httpOptions(target))),
    stdio: (command: Command) => newClient(new NewStdio(command)),
  },
};

export const agentToken = "agent-token-0-0123456789";
export const key = "api-key-0-0123456789abcd";
/** The tools in the order in which they are listed. */
export const toolNames = [
  "execute_code",
  "get_job",
  "cancel_job",
  "list_artifacts",
  "read_artifact",
  "create_session",
  "run_in_session",
  "close_session",
];
export const settings = {
  AIRLOCK_AGENT_TOKENS: agentToken,
  AIRLOCK_API_AUTH_ENABLED: "true",
  AIRLOCK_API_KEYS: key,
  AIRLOCK_API_RATE_LIMIT_REQUESTS: "100000",
  AIRLOCK_MAX_TIMEOUT: "600",
  AIRLOCK_ALLOWED_ORIGINS: "https://app.example",
  AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { requirements: ["numpy==2.3.4"], timeout: 300 } }),
};
