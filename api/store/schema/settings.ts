import { sqliteTable, text } from "drizzle-orm/sqlite-core";

/** What a database was made with. A migration writes it, so that older databases keep their ways. */
export const settings = sqliteTable("settings", {
  name: text("name").primaryKey(),
  value: text("value").notNull(),
});
