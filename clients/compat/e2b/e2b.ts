import { type Call, type Facade, Refusal } from "../facade.ts";
import { contexts } from "./contexts.ts";
import { control, running, type Service } from "./control.ts";
import { execute } from "./execute.ts";
import { files } from "./files.ts";
import { filesystem } from "./filesystem.ts";
import { start } from "./process.ts";
import { errorOf, failedStream, refuseCall, streamType } from "./connect.ts";

const sandboxHeader = "E2b-Sandbox-Id";
/** The second one is what calls about contexts bring. */
const tokenHeaders = ["X-Access-Token", "E2B-Traffic-Access-Token"];

/**
 * E2B's sandboxes: their control plane, and of each sandbox the code interpreter, files and commands. Source:
 * github.com/e2b-dev/infra, spec/openapi.yml and packages/envd/spec; npm's e2b and @e2b/code-interpreter.
 */
export function e2b(service: Service): Facade {
  return {
    async keyOf(headers) {
      const key = headers.get("X-Api-Key");
      if (key !== null) return key;
      const token = tokenHeaders.map((name) => headers.get(name)).find((value) => value !== null);
      const session = headers.get(sandboxHeader);
      if (token == null || session === null) return undefined;
      return service.tokens.open(token, session);
    },
    async answer(call) {
      if (/^(\/v2)?\/sandboxes(\/|$)/.test(call.path)) {
        // A token is for the calls of its sandbox only.
        if (!call.headers.has("X-Api-Key")) throw new Refusal(401, "Send the header X-API-Key.");
        return control(call, service);
      }
      return data(call, service, encodeURIComponent(call.headers.get(sandboxHeader) ?? ""));
    },
    refuse(status, message) {
      const code = status === 422 ? 400 : status === 503 ? 429 : status;
      const headers = code === 429 ? { "Retry-After": "2" } : {};
      return Response.json({ code, message }, { status: code, headers });
    },
  };
}

/** The data plane of a sandbox. Each of its services has errors of its own form. */
async function data(call: Call, service: Service, session: string): Promise<Response> {
  const isStream = call.headers.get("Content-Type")?.startsWith(streamType) ?? false;
  try {
    return await answerInside(call, service, session);
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    const error = await explain(call, session, thrown);
    if (isStream) return failedStream(error);
    if (rpcPath.test(call.path)) return refuseCall(errorOf(error));
    // Clients show the whole text.
    const { message, status } = error;
    if (/^\/(execute$|contexts)/.test(call.path)) return new Response(message, { status });
    throw error;
  }
}

/** A call whose sandbox is gone is refused for that. The sandbox is not looked up before, which would cost each call. */
async function explain(call: Call, session: string, refusal: Refusal): Promise<Refusal> {
  if (![400, 404, 409, 422].includes(refusal.status)) return refusal;
  try {
    await requireRunning(call, session);
  } catch (error) {
    if (error instanceof Refusal) return error;
  }
  return refusal;
}

/** @throws Refusal 502, which clients know. */
async function requireRunning(call: Call, session: string): Promise<void> {
  await running(call, session).catch((error: unknown) => {
    const isGone = error instanceof Refusal && error.status === 404;
    throw isGone ? new Refusal(502, "The sandbox was not found") : error;
  });
}

const rpcPath = /^\/(filesystem\.Filesystem|process\.Process)\/(\w+)$/;

async function answerInside(call: Call, service: Service, session: string): Promise<Response> {
  const [, plane, method = ""] = rpcPath.exec(call.path) ?? [];
  if (plane === "filesystem.Filesystem") return filesystem(call, session, method);
  if (method === "Start") return start(call, service, session);
  const [first = ""] = call.path.slice(1).split("/");
  if (call.path === "/health") {
    await requireRunning(call, session);
    return new Response(null, { status: 204 });
  }
  if (call.path === "/execute" && call.method === "POST") return execute(call, service, session);
  if (first === "contexts") return contexts(call, session);
  if (call.path === "/files") return files(call, session);
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}
