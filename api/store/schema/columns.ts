import { sql } from "drizzle-orm";
import { customType, text } from "drizzle-orm/sqlite-core";

/** Drivers return an ArrayBuffer, Uint8Array or Buffer; the API uses Uint8Array only. */
export const bytes = customType<{ data: Uint8Array; driverData: ArrayBuffer | Uint8Array }>({
  dataType: () => "blob",
  fromDriver: (value) => new Uint8Array(value),
});

export const inList = (values: readonly string[]) =>
  sql.raw(values.map((v) => `'${v}'`).join(", "));

/** Name of the tenant that owns a record. */
export const tenant = () => text("tenant").notNull().default("default");
