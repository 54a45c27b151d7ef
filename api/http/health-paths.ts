/** Whether a path is for monitoring the service: such a path needs no key and has no rate limit. */
export function isHealthPath(path: string): boolean {
  return /^\/health(\/(live|ready))?$/.test(path);
}
