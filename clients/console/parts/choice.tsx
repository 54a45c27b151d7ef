interface Choices {
  label: string;
  value: string;
  names: string[];
  onChange: (name: string) => void;
}

/** A choice among names. It offers the value, too, if the names lack it, for example before they are loaded. */
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
