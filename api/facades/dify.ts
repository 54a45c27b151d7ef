import { z } from "zod";
import { type Call, execute, type Facade, isOwnError, parseBody, Refusal } from "./facade.ts";

/**
 * Dify's sandbox: POST /v1/sandbox/run, GET /v1/sandbox/dependencies and GET /health. Source:
 * github.com/langgenius/dify-sandbox, internal/controller/run.go and internal/types/response.go.
 */
export const dify: Facade = {
  keyOf: (headers) => headers.get("X-Api-Key") ?? undefined,
  async answer(call) {
    const { method, path } = call;
    if (path === "/v1/sandbox/run" && method === "POST") return run(call);
    if (path === "/v1/sandbox/dependencies" && method === "GET")
      return success({ dependencies: [] });
    if (path === "/health" && method === "GET") return Response.json("ok");
    throw new Refusal(404, "not found: this service has POST /v1/sandbox/run");
  },
  refuse(status, message) {
    if (status === 401) return new Response(null, { status });
    const shown = status === 429 ? 503 : status === 422 ? 400 : status;
    return Response.json({ code: -shown, message, data: null }, { status: shown });
  },
};

const Run = z.object({
  language: z.enum(["python3", "nodejs"]),
  code: z.string(),
  preload: z.string().nullish(),
  enable_network: z.boolean().nullish(),
});

const [timeoutS, holdMs] = [30, 10_000];

async function run(call: Call): Promise<Response> {
  const { language, code, preload } = await parseBody(Run, await call.text(), 400);
  const job = {
    code: preload ? `${preload}\n${code}` : code,
    timeout: timeoutS,
    ...(language === "nodejs" && { language: "javascript" }),
  };
  const result = await execute(call, job, holdMs);
  if (isOwnError(result)) throw new Refusal(503, result.error!.message);
  const { stdout, stderr, exit_code } = result;
  const said = exit_code === null ? result.error!.message : `exited with code ${exit_code}`;
  const error = result.success ? "" : `process ${said}\n${stderr}`;
  return success({ stdout, stderr, error, exit_code });
}

function success(data: object): Response {
  return Response.json({ code: 0, message: "success", data });
}
