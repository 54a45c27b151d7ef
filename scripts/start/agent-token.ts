import { createHash, randomBytes } from "node:crypto";
import { linkSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { makeFolder } from "../../shared/process/make-folder.node.ts";

/** The token between the API and its agent, kept in `<dataDir>/agent-token`; made on the first start. */
export function agentToken(dataDir: string): string {
  makeFolder(dataDir);
  const file = join(dataDir, "agent-token");
  return readToken(file) ?? makeToken(file);
}

/**
 * The name of the agent with this token. It stays the same after a restart, so that the agent finds
 * containers it left. It differs for each data folder, so that no agent takes another's containers
 * for its own.
 */
export function agentName(token: string): string {
  return `${hostname()}-${createHash("sha256").update(token).digest("hex").slice(0, 8)}`;
}

function readToken(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/**
 * Writes a draft and links it, so that neither a crash nor a second start can leave half a token or
 * two tokens.
 */
function makeToken(file: string): string {
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft);
  }
  return readFileSync(file, "utf8").trim();
}
