import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { getRuntimeKey } from "hono/adapter";
import { compress } from "hono/compress";
import type { Deps } from "../../deps.ts";
import { AppError, notFound } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";

/** CodeMirror's styles are in shadow roots, as constructed style sheets: no inline style is needed. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "font-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const types: Record<string, string> = {
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
  woff2: "font/woff2",
};

/**
 * The web console. Its page and files need no key and are not counted by the rate limit: the page asks
 * for the key, and speaks the public interface with it.
 */
export function consoleRoutes(app: OpenAPIHono<AppEnv>, { asset }: Deps): void {
  // Programs still get 404 with a JSON body, as before the console.
  app.use("/", async (c, next) => {
    const isBrowser = c.req.method === "GET" && c.req.header("Accept")?.includes("text/html");
    return isBrowser ? c.redirect("/console") : next();
  });
  // Workers compress by themselves, and would do so twice.
  if (getRuntimeKey() !== "workerd") app.use("/console/*", compress());

  app.get("/console/assets/:name", async (c) => {
    const name = c.req.param("name");
    const type = types[/^\w[\w-]*\.([a-z0-9]+)$/.exec(name)?.[1] ?? ""];
    const body = type === undefined ? undefined : await asset(`console/assets/${name}`);
    if (type === undefined || !body) throw notFound(`Asset ${name}`);
    // The file name contains the hash of the content.
    const forever = "public, max-age=31536000, immutable";
    return c.body(body, 200, { "Content-Type": type, "Cache-Control": forever });
  });

  const page = async (c: Context<AppEnv>) => {
    const body = await asset("console/index.html");
    if (!body) {
      throw new AppError("not_found", "The console is not built: `npm run console` builds it.");
    }
    return c.body(body, 200, {
      "Content-Type": "text/html; charset=utf-8",
      "Content-Security-Policy": policy,
      "Referrer-Policy": "no-referrer",
      "Cache-Control": "no-cache",
    });
  };
  app.get("/console", page);
  // Every view has an address of its own, and the page shows the view.
  app.get("/console/*", page);
}
