import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** Requests of each client in its current window; used if several processes or isolates serve requests. */
export const rateWindows = sqliteTable(
  "rate_windows",
  {
    /** Hash of the API key, else the client's address. */
    client: text("client").primaryKey(),
    hits: integer("hits").notNull(),
    /** Epoch ms. */
    endsAt: integer("ends_at").notNull(),
  },
  (t) => [index("rate_windows_end").on(t.endsAt)],
);
