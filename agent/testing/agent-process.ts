import { fork } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { programOf } from "../../shared/testing/program.ts";

export type AgentProcess = ReturnType<typeof startAgent>;

/** Starts the agent's entry point in its own process with these AIRLOCK_ variables; `enter` is a command that runs it on another host. */
export function startAgent(env: Record<string, string | undefined>, enter: readonly string[] = []) {
  const [program = process.execPath, ...command] = enter.length ? [...enter, process.execPath] : [];
  const { entry, flags } = programOf("agent/main.ts");
  const agent = fork(entry, {
    execPath: program,
    // As scripts/run starts it.
    execArgv: [...command, "--max-semi-space-size=8", ...flags],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: { PATH: process.env["PATH"], AIRLOCK_AGENT_TOKEN: "a-token-of-16-characters", ...env },
  });
  /** All of its standard error, once it has ended. */
  const stderr = text(agent.stderr!);
  /** Its exit code; null for a signal. */
  const exit = once(agent, "exit").then(([code]) => code as number | null);
  /** The first message to its parent; rejects if it ends before. */
  const ready = Promise.race([
    once(agent, "message").then(([message]) => message as unknown),
    exit.then(async () => {
      throw new Error(`the agent ended before it was ready: ${await stderr}`);
    }),
  ]);
  ready.catch(() => {});
  return { process: agent, ready, exit, stderr };
}

export type EngineProxy = Awaited<ReturnType<typeof startEngineProxy>>;

/** A proxy in front of a real engine that can go away and come back. */
export async function startEngineProxy(engineHost: string, socketPath: string) {
  const sockets = new Set<Socket>();
  /** Requests to the engine so far, such as "POST /containers/create". */
  const requests: string[] = [];
  /** Bytes that came from the engine so far. */
  let bytesOut = 0;
  let server: Server | undefined;

  function link(from: Socket, to: Socket): void {
    sockets.add(from);
    from
      .on("error", () => {})
      .on("close", () => {
        sockets.delete(from);
        // A connection that ended well may still have bytes for a side that reads slowly.
        if (!from.readableEnded) to.destroy();
      });
    from.pipe(to);
  }

  /** A head, or at least its beginning, arrives in one piece. */
  function note(chunk: Buffer): void {
    const head = /^([A-Z]+) ([^ ?]+)\S* HTTP\/1/.exec(chunk.toString("latin1", 0, 4096));
    if (head) requests.push(`${head[1]} ${head[2]}`);
  }

  async function restore(): Promise<void> {
    server = createServer({ allowHalfOpen: true }, (client) => {
      const { protocol, hostname, port, pathname } = new URL(engineHost);
      const engine =
        protocol === "unix:" ? connect(pathname) : connect(Number(port || 2375), hostname);
      client.on("data", note);
      engine.on("data", (chunk: Buffer) => (bytesOut += chunk.length));
      link(client, engine);
      link(engine, client);
    }).listen(socketPath);
    await once(server, "listening");
  }

  /** Cuts all connections and stops listening. */
  async function cut(): Promise<void> {
    server?.close();
    for (const socket of sockets) socket.destroy();
    await rm(socketPath, { force: true });
  }

  await restore();
  const host = `unix://${socketPath}`;
  return { host, requests, bytesOut: () => bytesOut, cut, restore, [Symbol.asyncDispose]: cut };
}
