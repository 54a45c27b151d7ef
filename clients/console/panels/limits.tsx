import { useSignal } from "@preact/signals";
import { parseSize, sizeText } from "../model/sizes.ts";
import { announce } from "../parts/announce.ts";
import { Dialog, Problem } from "../parts/common.tsx";
import { messageOf } from "../service/client.ts";
import { setLimits, type Tenant, type TenantLimits } from "../service/tenants.ts";

const fields: { name: keyof TenantLimits; title: string; hint?: string }[] = [
  { name: "max_queued", title: "Jobs that wait" },
  { name: "max_running", title: "Jobs that run; more wait" },
  { name: "max_stored_bytes", title: "Stored bytes", hint: "such as 10 GiB" },
  { name: "max_cpu_s_day", title: "Seconds of CPU time in a day (UTC)" },
  { name: "max_requests", title: "Requests in the window of the rate limit" },
];

interface Props {
  tenant: Tenant;
  onSaved: () => void;
  onClose: () => void;
}

/** Sets what a tenant may use. */
export function Limits({ tenant, onSaved, onClose }: Props) {
  const problem = useSignal("");
  const save = async (form: HTMLFormElement): Promise<void> => {
    const given = new FormData(form);
    const limits: Record<string, number | null> = {};
    for (const { name } of fields) {
      const text = (given.get(name) as string).trim();
      const value = name === "max_stored_bytes" ? parseSize(text) : Number(text);
      if (text !== "" && value === undefined) {
        problem.value = `"${text}" is no size: write such as 10 GiB, 500 MB or a number of bytes.`;
        return;
      }
      limits[name] = text === "" ? null : value!;
    }
    try {
      await setLimits(tenant.name, limits);
      announce(`The limits of ${tenant.name} are set`);
      onSaved();
      onClose();
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  return (
    <Dialog label={`Limits of ${tenant.name}`} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save(event.currentTarget);
        }}
      >
        <h2>Limits of {tenant.name}</h2>
        {fields.map(({ name, title, hint }) => (
          <label key={name}>
            {title}
            {name === "max_stored_bytes" ? (
              <input name={name} defaultValue={shown(tenant.limits[name])} placeholder={hint} />
            ) : (
              <input
                name={name}
                type="number"
                min={0}
                defaultValue={String(tenant.limits[name] ?? "")}
              />
            )}
          </label>
        ))}
        <p class="quiet">An empty field is no limit.</p>
        <Problem text={problem.value} />
        <p class="actions">
          <button class="primary">Save</button>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </p>
      </form>
    </Dialog>
  );
}

const shown = (bytes: number | null | undefined): string =>
  bytes === null || bytes === undefined ? "" : sizeText(bytes);
