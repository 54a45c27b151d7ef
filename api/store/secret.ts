import { eq } from "drizzle-orm";
import type { Database } from "./database.ts";
import { settings } from "./schema.ts";

/** Random bytes that all processes with this database share. They are made when they are first asked for. */
export async function readSecret(db: Database, name: string): Promise<Uint8Array<ArrayBuffer>> {
  const value = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))));
  await db.orm.insert(settings).values({ name, value }).onConflictDoNothing();
  const [kept] = await db.orm
    .select({ value: settings.value })
    .from(settings)
    .where(eq(settings.name, name));
  return Uint8Array.from(atob(kept?.value ?? value), (letter) => letter.charCodeAt(0));
}
