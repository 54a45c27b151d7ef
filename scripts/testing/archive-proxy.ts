import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { pass, startHttpProxy } from "../../shared/testing/http-proxy.ts";

/** What becomes of the archive of an image on its way. */
export type Damage = (archive: Buffer, answer: ServerResponse) => void;

/** An API's address that agents reach it by, where archives of images wait and may be spoilt. */
export type ArchiveProxy = AsyncDisposable & {
  readonly url: string;
  /** Archives that were asked for so far. */
  readonly asked: () => number;
  /** Those of which only a part was asked for: they pass as they are. */
  readonly parts: () => number;
  /** Resolves once the next archive that is asked for has come, and was treated so. */
  readonly next: (damage: Damage) => Promise<void>;
};

export const whole: Damage = (archive, answer) => void answer.end(archive);
/** It breaks off in the middle. */
export const cut: Damage = (archive, answer) =>
  void answer.write(archive.subarray(0, archive.length / 2), () => answer.destroy());
/** Nothing comes after its middle, and the connection stays. */
export const stuck: Damage = (archive, answer) =>
  void answer.write(archive.subarray(0, archive.length / 2));
/** One bit is another. */
export const flipped: Damage = (archive, answer) => {
  archive[Math.floor(archive.length / 2)]! ^= 1;
  answer.end(archive);
};
export const replacedBy =
  (other: Buffer): Damage =>
  (_archive, answer) =>
    void answer.setHeader("content-length", other.length).end(other);

export async function startArchiveProxy(apiUrl: string): Promise<ArchiveProxy> {
  const waiting: { damage: Damage; done: () => void }[] = [];
  let wake = Promise.withResolvers<void>();
  let asked = 0;
  let parts = 0;

  async function treat(archive: Buffer, answer: ServerResponse): Promise<void> {
    while (waiting.length === 0 && !answer.closed) {
      await Promise.race([wake.promise, once(answer, "close")]);
    }
    if (answer.closed) return;
    const { damage, done } = waiting.shift()!;
    damage(archive, answer);
    done();
  }

  const proxy = await startHttpProxy(apiUrl, (reply, answer, request) => {
    const isArchive = request.url!.endsWith("/archive");
    if (isArchive) asked += 1;
    if (isArchive && request.headers.range !== undefined) parts += 1;
    answer.on("close", () => reply.destroy());
    if (!isArchive || reply.statusCode !== 200) return pass(reply, answer, request);
    for (const [name, value] of Object.entries(reply.headers)) answer.setHeader(name, value ?? "");
    void reply.toArray().then((parts: Buffer[]) => treat(Buffer.concat(parts), answer));
  });
  return {
    ...proxy,
    asked: () => asked,
    parts: () => parts,
    next: (damage) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.push({ damage, done: resolve });
      wake.resolve();
      wake = Promise.withResolvers<void>();
      return promise;
    },
  };
}
