/** EQ compares all 64 bits with value. MASKED_EQ has its mask in value, and compares valueTwo. */
export interface Argument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo: number;
  readonly op: "SCMP_CMP_EQ" | "SCMP_CMP_MASKED_EQ";
}

/** A call that is allowed with certain arguments only. */
export interface Guard {
  readonly name: string;
  /** None: with any arguments. */
  readonly args: readonly Argument[];
  /** What the call fails with; where it is missing, the call is made. 0 pretends that it was made. */
  readonly errno?: number;
}

/** An argument of type int: the kernel reads only its low 32 bits, so the filter does too. */
export const int = (index: number, value: number): Argument => masked(index, 0xffff_ffff, value);

export function masked(index: number, mask: number, value: number): Argument {
  return { index, value: mask, valueTwo: value, op: "SCMP_CMP_MASKED_EQ" };
}

/** The numbers from `first` on, as many as a power of two: `first` is a multiple of it. */
export const from = (index: number, first: number, count: number): Argument =>
  masked(index, (0xffff_ffff & ~(count - 1)) >>> 0, first);
