import type { Api } from "./api.ts";

/** Sends one message to the endpoint, and returns its answer: JSON, or an event with it. */
export async function callMcp(
  api: Api,
  headers: Record<string, string>,
  method: string,
  params: object = {},
): Promise<string> {
  const response = await fetch(`${api.url}/mcp`, {
    method: "POST",
    headers: {
      ...headers,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  return response.text();
}
