const form = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The W3C trace context of a request; undefined if it has none, or none that is valid. */
export function traceparentOf(header: string | undefined): string | undefined {
  return header !== undefined && form.test(header) ? header : undefined;
}
