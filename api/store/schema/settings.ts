import { sqliteTable, text } from "drizzle-orm/sqlite-core";

/** Values of this database: which events are stored for webhooks. */
export const settings = sqliteTable("settings", {
  name: text("name").primaryKey(),
  value: text("value").notNull(),
});
