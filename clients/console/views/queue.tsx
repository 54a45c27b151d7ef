import { Heading } from "../parts/common.tsx";
export function Queue() {
  return <Heading title="Queue and agents" />;
}
