import { createChangeSignal } from "../waiting/change-signal.ts";

/** Whether somebody follows a job: then its output is posted as it comes. */
export type Followed = {
  readonly isOn: () => boolean;
  /** Applies an answer of the API. An answer without the field changes nothing. */
  readonly learn: (told: { readonly watch?: boolean | undefined }) => void;
  /** Calls the listener when somebody begins to follow the job. Disposing the result ends that. */
  readonly subscribe: (listener: () => void) => Disposable;
};

export function createFollowed(isFollowed = false): Followed {
  const changes = createChangeSignal();
  let isOn = isFollowed;
  return {
    isOn: () => isOn,
    learn({ watch = isOn }) {
      const begins = watch && !isOn;
      isOn = watch;
      if (begins) changes.notify();
    },
    subscribe: changes.subscribe,
  };
}
