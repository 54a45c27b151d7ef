/** Wake-ups are hints, so the database is queried at least this often. */
export const backstopMs = 5_000;
