import { z } from "zod";
import { SessionContext } from "../../../shared/wire/client/session.ts";
import { SyncResult } from "../../../shared/wire/execution.ts";
import { ask, type Call, parseBody, post, Refusal } from "../facade.ts";
import { running } from "./control.ts";
import { homeFolder, toOurs } from "./paths.ts";

const Create = z.object({ language: z.string().nullish(), cwd: z.string().nullish() });

/** Contexts: interpreters of a sandbox. */
export async function contexts(call: Call, session: string): Promise<Response> {
  const [, id = "", what = ""] = call.path.slice(1).split("/");
  const path = `/sessions/${session}/contexts`;
  switch (`${call.method} ${id && "one"} ${what}`.trim()) {
    case "GET": {
      // Those of a session that has ended can be read, too.
      const { contexts: ids } = await running(call, session);
      return Response.json(ids.map((each) => shown(each)));
    }
    case "POST": {
      const { language, cwd } = await parseBody(Create, await call.text(), 400);
      if (language && language !== "python") {
        throw new Refusal(400, `${language} has no interpreter here`);
      }
      const { context_id } = SessionContext.parse(await ask(call, path, { method: "POST" }));
      if (cwd && toOurs(cwd) !== toOurs("")) await enter(call, session, context_id, cwd);
      return Response.json(shown(context_id, cwd ?? homeFolder), { status: 201 });
    }
    case "DELETE one":
      await ask(call, `${path}/${encodeURIComponent(id)}`, { method: "DELETE" });
      return new Response(null, { status: 204 });
    case "POST one restart":
      await post(call, `/sessions/${session}/restart`, { context: id });
      return new Response(null, { status: 204 });
  }
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

const shown = (id: string, cwd: string = homeFolder) => ({ id, language: "python", cwd });

async function enter(call: Call, session: string, context: string, cwd: string): Promise<void> {
  const code = `__import__("os").chdir(${JSON.stringify(toOurs(cwd))})`;
  const ran = await post(call, `/sessions/${session}/execute`, { code, context });
  const { error } = SyncResult.parse(ran);
  if (error) throw new Refusal(400, `cwd: ${error.message}`);
}
