import { type Call, type Facade, Refusal } from "../facade.ts";
import { exec } from "./exec.ts";
import { execWithTools } from "./programmatic.ts";
import { describe, fileOf, filesOf, remove, upload } from "./files.ts";

/**
 * The code interpreter of LibreChat: code and files, without sessions that remember. Source:
 * github.com/LibreChat-AI/code-interpreter, service/src/service/router.ts, and npm's @librechat/agents.
 */
export const librechat: Facade = {
  keyOf: (headers, compatKey) =>
    headers.get("X-Api-Key") ??
    /^Bearer (.+)$/i.exec(headers.get("Authorization") ?? "")?.[1] ??
    compatKey,
  async answer(call) {
    const path = call.path.replace(/^\/v1(?=\/)/, "");
    const [first = "", session = "", second = "", third = ""] = path.slice(1).split("/");
    switch (`${call.method} ${first}`) {
      case "POST exec":
        return session === "programmatic" ? execWithTools(call) : exec(call);
      case "POST upload":
        return upload(call, session === "batch");
      case "GET files":
        return list(call, session);
      case "DELETE files":
        return remove(call, session, second);
      case "GET download":
        return (await fileOf(call, session, second)).open();
      case "GET sessions":
        return Response.json(describe(await fileOf(call, session, third), session));
      case "DELETE sessions":
        return remove(call, session, third);
    }
    throw new Refusal(404, `This service has no ${call.method} ${path}.`);
  },
  refuse(status, message) {
    const shown = status === 503 ? 429 : status === 422 ? 400 : status;
    return Response.json({ error: message }, { status: shown });
  },
};

async function list(call: Call, session: string): Promise<Response> {
  const files = await filesOf(call, session);
  return Response.json(files.map((file) => describe(file, session)));
}
