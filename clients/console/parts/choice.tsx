interface Choices {
  label: string;
  value: string;
  names: string[];
  onChange: (name: string) => void;
}

/** One of some names. The value stays one of them, also if it is not known yet. */
export function Choice({ label, value, names, onChange }: Choices) {
  const shown = names.includes(value) ? names : [...names, value];
  return (
    <label class="inline">
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {shown.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
