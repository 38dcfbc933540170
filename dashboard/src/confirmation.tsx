/** One order to the node, told before it is given. */

import { order } from "./asking";
import { AskingDialog } from "./asking_dialog";

export interface Order {
  readonly title: string;
  readonly words: string;
  readonly button: string;
  readonly path: string;
  readonly body: object;
  readonly isDangerous: boolean;
}

/** `onEnd` hears whether it was done. */
export function Confirmation(
  { asked, onEnd }: { asked: Order; onEnd: (isDone: boolean) => void },
) {
  const give = async (adminToken: string): Promise<void> => {
    await order(asked.path, adminToken, asked.body);
    onEnd(true);
  };
  return (
    <AskingDialog
      title={asked.title} button={asked.button} isDangerous={asked.isDangerous}
      onSubmit={give} onLeave={() => onEnd(false)}
    >
      <p>{asked.words}</p>
    </AskingDialog>
  );
}
