import { z } from "zod";
import type { EventData } from "../../../shared/wire/client/events.ts";
import { type Call, parseBody, signalOf } from "../facade.ts";
import { frame, lastFrame, readFrame, streamType } from "./connect.ts";
import type { Service } from "./control.ts";
import { type CallEvent, reasonOfCut, run } from "./events.ts";
import { homeFolder, toOurs } from "./paths.ts";
import { streamed } from "./stream.ts";

const Start = z.object({
  process: z.object({
    cmd: z.string(),
    args: z.array(z.string()).default([]),
    envs: z.record(z.string(), z.string()).default({}),
    cwd: z.string().optional(),
  }),
  pty: z.undefined("is not offered").optional(),
  stdin: z.literal(false, "is not offered").optional(),
});

/** Clients kill by it, which this service does not offer. */
const pid = 1;

/** Runs a command to its end; the answer is a stream of what it writes. */
export async function start(call: Call, service: Service, session: string): Promise<Response> {
  const { process } = await parseBody(Start, readFrame(await call.bytes()), 400);
  const timeoutMs = Number(call.headers.get("Connect-Timeout-Ms")) || Infinity;
  const fields = {
    command: commandOf(process),
    env: process.envs,
    timeout: Math.min(service.maxTimeoutS, Math.ceil(timeoutMs / 1000)),
  };
  const ended = new AbortController();
  const signal = AbortSignal.any([call.signal, ended.signal]);
  const events = await run(call, session, fields, signal);
  const keepAlive = frame({ event: { keepalive: {} } });
  return streamed(streamType, keepAlive, partsOf(events), () => ended.abort());
}

async function* partsOf(events: AsyncGenerator<CallEvent, void>): AsyncGenerator<Uint8Array, void> {
  yield frame({ event: { start: { pid } } });
  try {
    for await (const { event, data } of events) {
      if (event === "stdout" || event === "stderr") {
        yield frame({ event: { data: { [event]: base64(data.text) } } });
      } else if (event === "end") yield* endOf(data);
    }
  } catch (error) {
    yield lastFrame({ code: "unavailable", message: reasonOfCut(error) });
  }
}

function commandOf({ cmd, args, cwd }: z.infer<typeof Start>["process"]): string[] {
  if (cwd === undefined || toOurs(cwd) === toOurs(homeFolder)) return [cmd, ...args];
  return ["sh", "-c", 'cd "$0" && exec "$@"', toOurs(cwd), cmd, ...args];
}

export function endOf(record: EventData<"end">): Uint8Array[] {
  const { exit_code, error } = record;
  if (error?.type === "execution_timeout") {
    return [lastFrame({ code: "deadline_exceeded", message: error.message })];
  }
  // The command has not exited by itself: its sandbox was ended, for example.
  if (error?.type === "cancelled") {
    return [lastFrame({ code: "canceled", message: error.message })];
  }
  if (exit_code === null) {
    return [lastFrame({ code: "aborted", message: error?.message ?? "it did not end" })];
  }
  const signal = signalOf({ exit_code, error });
  const end =
    signal === undefined
      ? { exitCode: exit_code, exited: true, status: `exit status ${exit_code}` }
      : { exitCode: -1, exited: false, status: `signal: ${signal}` };
  const failure = exit_code === 0 ? {} : { error: end.status };
  return [frame({ event: { end: { ...end, ...failure } } }), lastFrame()];
}

function base64(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
