// Replaces @types/node, which @libsql/core refers to, so that tsconfig.edge.json compiles the API core
// without Node's types.

declare module "node:async_hooks" {
  /** The part that the API uses. Source: https://developers.cloudflare.com/workers/runtime-apis/nodejs/asynclocalstorage/ */
  export class AsyncLocalStorage<T> {
    run<R>(store: T, work: () => R): R;
    getStore(): T | undefined;
  }
}
