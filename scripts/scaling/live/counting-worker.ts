/**
 * An entry module around the worker, which counts requests to its Durable Objects and the runs of their
 * alarms. GET /counts returns the counts, GET /scheduled fires the cron trigger.
 *
 * @param classes Names of the classes of its Durable Objects.
 */
export function countingWorker(classes: readonly string[]): string {
  return `
import worker, * as all from "./worker.js";

const counts = { objectRequests: 0, alarms: 0 };

function counting(stub) {
  return new Proxy(stub, {
    get: (_, name) => (...given) => {
      counts.objectRequests += 1;
      return stub[name](...given);
    },
  });
}

function countingAll(env) {
  const isNamespace = (value) => typeof value?.getByName === "function";
  const wrapped = (objects) => ({ getByName: (name) => counting(objects.getByName(name)) });
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [name, isNamespace(value) ? wrapped(value) : value]),
  );
}

${classes.map(countingClass).join("\n")}

export default {
  async fetch(request, env, context) {
    const { pathname } = new URL(request.url);
    if (pathname === "/counts") return Response.json(counts);
    if (pathname !== "/scheduled") return worker.fetch(request, countingAll(env), context);
    await worker.scheduled({}, countingAll(env), context);
    return new Response();
  },
};
`;
}

const countingClass = (name: string): string => `
export class ${name} extends all.${name} {
  constructor(context, env) {
    super(context, countingAll(env));
  }
  alarm(...given) {
    counts.alarms += 1;
    return super.alarm(...given);
  }
}`;
