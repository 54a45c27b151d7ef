/** What a filter sees of a call, struct seccomp_data. */
export interface Call {
  readonly number: number;
  readonly architecture: number;
  readonly args: readonly bigint[];
}

/**
 * Runs a program of classic BPF on a call, as the kernel does, and returns its answer. Source:
 * Documentation/networking/filter.rst and kernel/seccomp.c.
 */
export function interpret(program: Buffer, { number, architecture, args }: Call): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number, 0);
  data.writeUInt32LE(architecture, 4);
  args.forEach((arg, index) => data.writeBigUInt64LE(arg, 16 + 8 * index));
  let accumulator = 0;
  for (let at = 0; at < program.length; at += 8) {
    const code = program.readUInt16LE(at);
    const value = program.readUInt32LE(at + 4);
    const jumpIf = (condition: boolean): number => program.readUInt8(at + (condition ? 2 : 3)) * 8;
    switch (code) {
      case 0x20: // BPF_LD | BPF_W | BPF_ABS
        accumulator = data.readUInt32LE(value);
        break;
      case 0x54: // BPF_ALU | BPF_AND | BPF_K
        accumulator = (accumulator & value) >>> 0;
        break;
      case 0x05: // BPF_JMP | BPF_JA
        at += value * 8;
        break;
      case 0x15: // BPF_JMP | BPF_JEQ | BPF_K
        at += jumpIf(accumulator === value);
        break;
      case 0x35: // BPF_JMP | BPF_JGE | BPF_K
        at += jumpIf(accumulator >= value);
        break;
      case 0x45: // BPF_JMP | BPF_JSET | BPF_K
        at += jumpIf((accumulator & value) !== 0);
        break;
      case 0x06: // BPF_RET | BPF_K
        return value;
      default:
        throw new Error(`unknown instruction ${code.toString(16)} at ${at / 8}`);
    }
  }
  throw new Error("the program ends without an answer");
}

/** What the kernel would refuse: bpf_check_classic and seccomp_check_filter. */
export function findFaults(program: Buffer): string[] {
  const length = program.length / 8;
  const faults = length >= 1 && length <= 4096 ? [] : [`${length} instructions`];
  for (let i = 0; i < length; i++) {
    const code = program.readUInt16LE(i * 8);
    const value = program.readUInt32LE(i * 8 + 4);
    const isJump = (code & 0x07) === 0x05;
    const jumps = code === 0x05 ? [value] : [program[i * 8 + 2]!, program[i * 8 + 3]!];
    if (isJump && jumps.some((count) => i + 1 + count >= length)) faults.push(`${i}: jumps out`);
    if (code === 0x20 && (value % 4 !== 0 || value >= 64)) faults.push(`${i}: loads beyond`);
  }
  if (program.readUInt16LE((length - 1) * 8) !== 0x06) faults.push("ends without an answer");
  return faults;
}
