import { useSignal } from "@preact/signals";
import { sessionAddress } from "../../model/address.ts";
import { attempt } from "../../parts/announce.ts";
import { Choice } from "../../parts/choice.tsx";
import { ScopedButton } from "../../parts/scoped-button.tsx";
import { useFeed } from "../../service/feed.ts";
import { go } from "../../service/location.ts";
import { listJobTypes } from "../../service/records.ts";
import { createSession } from "../../service/sessions.ts";

/** Starts a session of a job type, and shows it. */
export function NewSession() {
  const types = useFeed("names of job types", listJobTypes, () => true);
  const jobType = useSignal("default");
  const isMaking = useSignal(false);
  const make = async (): Promise<void> => {
    isMaking.value = true;
    try {
      const { session_id: id } = await createSession(jobType.value);
      go(sessionAddress(id));
    } finally {
      isMaking.value = false;
    }
  };
  return (
    <>
      <Choice
        label="Job type"
        value={jobType.value}
        names={(types.value.data ?? []).map(({ name }) => name)}
        onChange={(next) => (jobType.value = next)}
      />
      <ScopedButton
        scope="run"
        class="primary"
        disabled={isMaking.value}
        onClick={() => void attempt(make)}
      >
        New session
      </ScopedButton>
    </>
  );
}
