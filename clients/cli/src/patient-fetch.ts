import type { Problem } from "../../typescript/src/index.ts";
import { NoServiceError } from "./exit.ts";
import { sayProxy } from "./proxy.ts";
import { plain, type Terminal } from "./terminal.ts";

/** Tries before a service has answered: about 3 s, enough for a restart. */
const refusedTries = 5;
/** After this time without an answer, the command says that it waits. */
const silentMs = 5000;
/** Requests that may take long: those that wait for an event, and uploads, which show their progress. */
const mayTakeLong = /[?&]wait=|\/build\b|\/execute$|\/files\?/;

/**
 * The global `fetch`. Says once why the command waits. Gives up early if no service has answered before: then the
 * address is wrong, or nothing listens there.
 */
export function patientFetch(url: string, terminal: Terminal): typeof fetch {
  const way = sayProxy(url, process.env);
  let [isSaid, hasAnswered, failures] = [false, false, 0];
  const say = (text: string): void => {
    if (!isSaid) terminal.note(text, "dim");
    isSaid = true;
  };
  return async (input, init) => {
    const silence = setTimeout(() => {
      say(`${url} has not answered for ${silentMs / 1000} s; still waiting …`);
    }, silentMs);
    if (mayTakeLong.test(input as string)) clearTimeout(silence);
    try {
      const answer = await fetch(input, init);
      hasAnswered = true;
      const reason = isSoonBetter.has(answer.status) ? await describe(url, answer) : undefined;
      if (reason !== undefined) say(`${reason}; trying again …`);
      return answer;
    } catch (error) {
      if (init?.signal?.aborted === true) throw error;
      failures++;
      const { reason, isFinal, isRefused } = explain(error);
      if (!hasAnswered && (isFinal || (isRefused && failures >= refusedTries))) {
        throw new NoServiceError(`${url} could not be reached${way}: ${reason}`, { cause: error });
      }
      say(`${url} does not answer${way} (${reason}); trying again …`);
      throw error;
    } finally {
      clearTimeout(silence);
    }
  };
}

/** Statuses after which the client repeats a request, when the service asks for it. */
const isSoonBetter = new Set([429, 502, 503, 504]);

/** Why a request is repeated. Of the quotas, only that of waiting jobs is free again soon. */
async function describe(url: string, answer: Response): Promise<string | undefined> {
  const problem: unknown = await answer
    .clone()
    .json()
    .catch(() => undefined);
  const { quota, detail = `HTTP ${answer.status}` } = (problem ?? {}) as Partial<Problem>;
  if (quota !== undefined && quota !== "max_queued") return undefined;
  return `${url} cannot serve this now (${plain(detail)})`;
}

/** Errors that another try does not mend. "bad port": browsers, and so `fetch`, connect to no such port. */
const final = /^(ENOTFOUND|ERR_(SSL|TLS)_\w+|\w*CERT\w*|UNABLE_TO_\w+|bad port)$/;
const untrusted = /CERT|UNABLE_TO_/;

function explain(error: unknown): { reason: string; isFinal: boolean; isRefused: boolean } {
  const cause: unknown = error instanceof Error ? (error.cause ?? error) : error;
  const { message, code = message } = cause as NodeJS.ErrnoException;
  const trust = untrusted.test(code) ? "; NODE_EXTRA_CA_CERTS=ca.pem adds an authority" : "";
  return {
    reason: reasons[code] ?? (message || code) + trust,
    isFinal: final.test(code),
    isRefused: code === "ECONNREFUSED",
  };
}

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "there is no host of that name",
  ERR_SSL_WRONG_VERSION_NUMBER: "it does not speak TLS; try http://",
};
