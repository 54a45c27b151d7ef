/** What fetch needs to send a value as JSON, or a text as it is. */
export function jsonRequest(
  method: string,
  body?: unknown,
  headers: Record<string, string> = {},
): RequestInit {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return {
    method,
    headers: { "Content-Type": "application/json", ...headers },
    ...(text !== undefined && { body: text }),
  };
}
