/** Wake-ups are hints, so the database is queried at least this often. */
export const backstopMs = 5_000;

/** Proxies close a connection on which no byte comes: most after a minute, some after 20 s. */
export const silenceMs = 10_000;
