import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { connectEngine, type Engine } from "../engine/engine.ts";

export type Answer = (request: IncomingMessage, response: ServerResponse) => unknown;

/** Starts engines that answer every request in one way; all end with the test file. */
export function fakeEngines() {
  const folder = tempFolder();
  const ends: (() => void)[] = [];
  afterAll(() => {
    for (const end of ends) end();
  });

  /** An engine that answers every request in one way. */
  async function fakeEngine(
    answer: Answer,
    warn?: (message: string) => void,
    files?: string,
  ): Promise<Engine> {
    const path = join(folder, `${ends.length}.sock`);
    const server = createServer(answer).listen(path);
    ends.push(() => {
      server.closeAllConnections();
      server.close();
    });
    await once(server, "listening");
    return connectEngine(`unix://${path}`, warn, files);
  }

  return { folder, fakeEngine };
}
