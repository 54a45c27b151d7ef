import { Heading } from "../parts/common.tsx";
export function HealthView() {
  return <Heading title="Health" />;
}
