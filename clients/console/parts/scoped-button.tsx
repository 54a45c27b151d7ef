import type { ComponentProps } from "preact";
import type { Scope } from "../../typescript/src/generated.ts";
import { lacksScope } from "../service/own-key.ts";

type Props = ComponentProps<"button"> & { scope: Scope };

/** Why a button does nothing; undefined if the key may do it. */
export const whyNot = (scope: Scope): string | undefined =>
  lacksScope(scope) ? `Needs an API key that has the scope ${scope}` : undefined;

/** A button for what needs a scope. With a key that lacks it, it does nothing, and its title says why; it keeps the focus. */
export function ScopedButton({ scope, ...button }: Props) {
  const why = whyNot(scope);
  const refused = { title: why, "aria-disabled": true, onClick: undefined };
  return <button {...button} {...(why !== undefined && refused)} />;
}
