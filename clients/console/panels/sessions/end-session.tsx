import { announce, attempt } from "../../parts/announce.ts";
import { Confirm, shortId } from "../../parts/common.tsx";
import { endSession } from "../../service/sessions.ts";

interface Props {
  id: string;
  onEnd: () => void;
  onClose: () => void;
}

/** Asks before a session is ended, which cannot be undone. */
export function EndSession({ id, onEnd, onClose }: Props) {
  const end = async (): Promise<void> => {
    await endSession(id);
    announce("The session has ended");
    onEnd();
  };
  return (
    <Confirm
      title={`End session ${shortId(id)}`}
      action="End"
      onConfirm={() => void attempt(end)}
      onClose={onClose}
    >
      Its variables and files are gone then, and a call that runs is cancelled. What its calls wrote
      and showed stays in their records.
    </Confirm>
  );
}
