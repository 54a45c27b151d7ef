import { expect } from "vitest";
import { endpointsOf, type OpenApiDocument } from "../openapi-document.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body } from "./api.ts";
import { on } from "./row.ts";
import { type Asked, isForOperators, type Probe, probesOf } from "./isolation-walk.ts";
import {
  type Headers,
  keyOf,
  makeThings,
  nobodys,
  secretsOf,
  type Things,
} from "./isolation-world.ts";
import {
  type Answer,
  type Answers,
  expectSameAnswer,
  expectUnchanged,
  withoutIds,
} from "./isolation-answers.ts";
import { callMcp } from "./mcp.ts";

interface World {
  own: Things;
  others: Things;
  nobody: Things;
}

const send = (api: Api, { method, path, headers, body: text }: Asked, key: Headers) =>
  api.send(method, path, {
    headers: { ...headers, ...key },
    ...(text !== undefined && { body: text }),
  });

/** Removes what a probe has made, so that the next one meets the same. */
async function undo(api: Api, reply: Reply, key: Headers): Promise<void> {
  if (reply.status >= 300 || !reply.headers.get("Content-Type")?.startsWith("application/json"))
    return;
  const { job_id, batch_id, file_id, session_id } = body(reply) as Record<string, string>;
  if (batch_id && reply.status === 202)
    await api.post(`/batches/${batch_id}/cancel`, undefined, key);
  else if (job_id && reply.status === 202) await api.post(`/jobs/${job_id}/cancel`, undefined, key);
  else if (session_id && reply.status === 202)
    await api.send("DELETE", `/sessions/${session_id}`, { headers: key });
  else if (file_id) await api.send("DELETE", `/files/${file_id}`, { headers: key });
}

const lists = [
  "/executions?view=all",
  "/dlq",
  "/dlq/stats",
  "/files",
  "/sessions",
  "/usage",
  "/job-types",
  "/openapi.json",
];
async function seen(api: Api, key: Headers, more: string[] = []): Promise<Answers> {
  const reads = [...lists, ...more].map(async (path) => [path, (await api.get(path, key)).text]);
  return Object.fromEntries(await Promise.all(reads)) as Answers;
}

const uri = ({ job }: Things): string => `airlock://jobs/${job}/artifacts/out.txt`;
const isWrite = ({ what }: Probe): boolean => !/^(GET|HEAD) /.test(what);

/** Sends what each probe carries, of somebody else and of nobody, and compares the answers. */
async function walk(
  api: Api,
  probe: Probe,
  key: Headers,
  { own, others, nobody }: World,
): Promise<void> {
  const answers: Answer[] = [];
  for (const carried of [others, nobody]) {
    const reply = await send(api, probe.ask(carried, own), key);
    await undo(api, reply, key);
    answers.push({ carried, reply });
  }
  const [ofOthers, ofNobody] = answers as [Answer, Answer];
  expectSameAnswer(probe.what, probe.ask(others, own), ofOthers, ofNobody);
}

interface Tool {
  name: string;
  inputSchema: { properties?: object };
}

/** `job_id` and `session_id` are somebody's; the others can carry nothing of a tenant. */
const mcpArguments = new Set(
  `job_id session_id name offset code language input_data files stdin args job_type timeout requirements
  wait_seconds idle_timeout restart`.split(/\s+/),
);

/** New ones for each row, and for its second try. */
function twoTenants(): [a: string, b: string] {
  const number = crypto.randomUUID().slice(0, 8);
  return [`a-${number}`, `b-${number}`];
}

export const isolationRows = on("with tenants", [
  {
    rule: "Whatever of another tenant a request carries, the answer is the one for ids that nobody has; a parameter that this row does not know fails it",
    async check(api) {
      const [a, b] = twoTenants();
      const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
      const own = await makeThings(api, b, keyB);
      const others = await makeThings(api, a, keyA, "ml");
      // A call of an open one would wait for its agent.
      await api.send("DELETE", `/sessions/${own.session}`, { headers: keyB });
      const world = { own, others, nobody: nobodys(others) };
      await api.post("/execute/async", { code: "later" }, keyB);
      const before = await seen(api, keyA);
      const document = body(await api.get("/openapi.json", keyB)) as OpenApiDocument;
      const endpoints = endpointsOf(document).filter(({ path }) => !isForOperators(path));
      // Reads first: what writes carry is in this tenant's own records afterwards.
      const probes = endpoints
        .flatMap((endpoint) => probesOf(document, endpoint))
        .toSorted((one, other) => Number(isWrite(one)) - Number(isWrite(other)));
      expect(probes.length).toBeGreaterThan(70);
      for (const probe of probes) await walk(api, probe, keyB, world);
      expectUnchanged(before, await seen(api, keyA));
      // What the walk carries is there: its owner finds it.
      for (const { what, ask } of probes.filter((probe) =>
        /^GET \S*\{id\}\S* with path$/.test(probe.what),
      )) {
        if (what.includes("/build") || what.includes("/sessions/{id}/files")) continue;
        const { status } = await send(api, ask(others, others), keyA);
        expect({ what, status }).toEqual({ what, status: 200 });
      }
    },
  },
  {
    rule: "MCP: whatever of another tenant a tool or a resource is given, it answers as for what nobody has; an argument that this row does not know fails it",
    async check(api) {
      const [a, b] = twoTenants();
      const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
      const others = await makeThings(api, a, keyA, "ml");
      const nobody = nobodys(others);
      const call = (key: Headers, method: string, params?: object) =>
        callMcp(api, key, method, params);
      const listed = /\{.*\}/s.exec(await call(keyB, "tools/list"))![0];
      const { tools } = (JSON.parse(listed) as { result: { tools: Tool[] } }).result;
      const carrying = tools.flatMap(({ name, inputSchema: { properties = {} } }) => {
        const unknown = Object.keys(properties).filter((one) => !mcpArguments.has(one));
        expect({ name, unknown }).toEqual({ name, unknown: [] });
        const id = ["job_id", "session_id"].find((one) => one in properties);
        return id === undefined ? [] : [{ name, id }];
      });
      const names = ["get_job", "cancel_job", "read_artifact", "run_in_session", "close_session"];
      expect(carrying.map(({ name }) => name)).toEqual(expect.arrayContaining(names));
      const further: Record<string, object> = {
        read_artifact: { name: "out.txt" },
        run_in_session: { code: "1" },
      };
      const asks: [string, (things: Things) => object][] = [
        ...carrying.map(({ name, id }): [string, (things: Things) => object] => [
          "tools/call",
          ({ job, session }) => ({
            name,
            arguments: { [id]: id === "job_id" ? job : session, ...further[name] },
          }),
        ]),
        ["resources/read", (things) => ({ uri: uri(things) })],
      ];
      for (const [method, params] of asks) {
        const answers = await Promise.all(
          [others, nobody].map(async (things) =>
            withoutIds(await call(keyB, method, params(things))),
          ),
        );
        expect({ method, answer: answers[0] }).toEqual({ method, answer: answers[1] });
      }
      const own = await call(keyA, "tools/call", {
        name: "read_artifact",
        arguments: { job_id: others.job, name: "out.txt" },
      });
      expect(own).toContain(secretsOf(a)[5]);
      expect(await call(keyA, "resources/read", { uri: uri(others) })).toContain("artifact-of-");
    },
  },
  {
    rule: "While a tenant reads and follows its job, another one that asks for the same id at the same moment gets nothing of it",
    async check(api) {
      const [a, b] = twoTenants();
      const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
      const { job, waiting } = await makeThings(api, a, keyA, "ml");
      const end = new AbortController();
      const follow = fetch(`${api.url}/jobs/${waiting}/events`, {
        headers: keyA,
        signal: end.signal,
      });
      await (await follow).body?.getReader().read();
      const paths = [
        `/executions/${job}?view=all`,
        `/jobs/${job}`,
        `/jobs/${waiting}`,
        `/jobs/${waiting}/events`,
      ];
      for (const path of paths) {
        const isStream = path.endsWith("/events");
        const asks = Array.from({ length: 20 }, async (_, n) => {
          const isOwner = n % 2 === 0;
          if (isOwner && isStream) return [];
          const { status } = await api.get(path, isOwner ? keyA : keyB);
          return [`${isOwner ? "owner" : "other"} ${status}`];
        });
        const answers = new Set((await Promise.all(asks)).flat());
        const expected = isStream ? ["other 404"] : ["owner 200", "other 404"];
        expect({ path, answers: [...answers].sort() }).toEqual({ path, answers: expected.sort() });
      }
      end.abort();
    },
  },
  {
    rule: "What a tenant does shows in no answer that another one gets about itself",
    async check(api) {
      const [a, b] = twoTenants();
      const [keyA, keyB] = [await keyOf(api, a), await keyOf(api, b)];
      const { waiting, heard } = await makeThings(api, b, keyB);
      const own = [
        `/jobs/${waiting}/result`,
        `/webhooks/events?after=${heard}`,
        "/webhooks/events",
        "/webhooks/deliveries?status=delivered",
      ];
      const before = await seen(api, keyB, own);
      await makeThings(api, a, keyA, "ml");
      expectUnchanged(before, await seen(api, keyB, own));
    },
  },
]);
