import { giveKey } from "../service/key.ts";
import { Dialog } from "../parts/common.tsx";

/** Asks for the API key. It cannot be closed without one: nothing can be shown. */
export function KeyDialog({ reason }: { reason: "missing" | "wrong" }) {
  return (
    <Dialog label="API key">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const given = new FormData(event.currentTarget).get("key");
          if (typeof given === "string" && given.trim() !== "") giveKey(given);
        }}
      >
        <h2>API key</h2>
        <p>
          {reason === "missing"
            ? "This service answers only with a key. Its operator makes one for you."
            : "The service does not accept this key."}
        </p>
        <label>
          Key
          <input
            name="key"
            type="password"
            autocomplete="off"
            required
            autofocus
            spellcheck={false}
          />
        </label>
        <p class="quiet">Only the open tabs of this console keep it.</p>
        <p class="actions">
          <button class="primary">Continue</button>
        </p>
      </form>
    </Dialog>
  );
}
