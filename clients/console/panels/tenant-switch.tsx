import { useFeed } from "../service/feed.ts";
import { chooseTenant, tenant } from "../service/key.ts";
import { listTenants } from "../service/tenants.ts";

const tenantsMs = 30_000;

/** Chooses whose records the console shows. */
export function TenantSwitch() {
  const tenants = useFeed("tenants of the switch", listTenants, undefined, tenantsMs).value.data;
  const names = (tenants ?? []).map(({ name }) => name);
  const chosen = tenant.value;
  if (names.length < 2 && chosen === "") return null;
  const isKnown = ["", "*", ...names].includes(chosen);
  return (
    <label class="tenant">
      Tenant
      <select value={chosen} onChange={(event) => chooseTenant(event.currentTarget.value)}>
        <option value="">the key's own</option>
        <option value="*">all</option>
        {[...names, ...(isKnown ? [] : [chosen])].map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
