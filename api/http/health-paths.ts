/** Whether a path is for whoever watches the service: open without a key and never rate limited. */
export function isHealthPath(path: string): boolean {
  return /^\/health(\/(live|ready))?$/.test(path);
}
