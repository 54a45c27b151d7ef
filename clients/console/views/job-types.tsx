import { Heading } from "../parts/common.tsx";

export function JobTypes() {
  return <Heading title="Job types" />;
}
