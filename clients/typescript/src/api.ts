import type { RequestOpts } from "@oazapfts/runtime";
import * as generated from "./generated.ts";
import type { CallOptions, Transport } from "./transport/transport.ts";

type Generated = typeof generated;

type Data<Answer> = Answer extends { data: infer Body } ? Body : undefined;

type Bound<Operation> = Operation extends (...args: infer Args) => Promise<infer Answer>
  ? Args extends [infer Parameters, unknown?]
    ? (parameters: Parameters, options?: CallOptions) => Promise<Data<Answer>>
    : (options?: CallOptions) => Promise<Data<Answer>>
  : never;

/** Every operation of the OpenAPI document by its name. They answer with the body and throw refusals. */
export type Api = {
  [
    Name in keyof Generated as Generated[Name] extends (...args: never[]) => unknown ? Name : never
  ]: Bound<Generated[Name]>;
};

/** Operations that answer only when the work is done, so they have no time limit. */
const unhurried = ["execute", "executeInSession", "restartSession", "buildJobType"];

type Operation = (...args: unknown[]) => Promise<{ data?: unknown }>;

export function bindApi({ send }: Pick<Transport, "send">): Api {
  const operations = Object.entries(generated).filter(
    (entry): entry is [keyof Api, never] => typeof entry[1] === "function",
  );
  return Object.fromEntries(
    operations.map(([name, operation]) => [name, bind(operation, unhurried.includes(name), send)]),
  ) as Api;
}

function bind(operation: Operation, isUnhurried: boolean, send: Transport["send"]): Operation {
  const bound = async (args: unknown[], options: CallOptions = {}) => {
    const limited = { ...(isUnhurried && { timeoutMs: 0 }), ...options };
    const request: RequestOpts = {
      baseUrl: "",
      fetch: (path, init) => send(path as string, init, limited),
    };
    return (await operation(...args, request)).data as { data?: unknown };
  };
  // A generated function takes its parameters, if there are any, and its options.
  return operation.length === 2
    ? (parameters, options) => bound([parameters], options as CallOptions)
    : (options) => bound([], options as CallOptions);
}
