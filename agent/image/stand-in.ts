/** Label of an image that stands in for the image that it names. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";
