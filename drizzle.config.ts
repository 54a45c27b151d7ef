import { defineConfig } from "drizzle-kit";

export default defineConfig({
  dialect: "sqlite",
  schema: "./api/store/schema.ts",
  out: "./api/store/migrations",
});
