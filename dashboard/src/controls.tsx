/** What an operator may have the node do. Each asks once more, and for the admin token. */

import { useState } from "preact/hooks";
import { Card } from "./card";
import { Confirmation, type Order } from "./confirmation";
import type { Status } from "./facts";

const PAUSE: Order = {
  title: "Pause the training of this node?",
  words: "It finishes the steps under way and trains no more. It stays a voter, merges and signs "
    + "as before. It trains again after Resume, or when the daemon starts anew.",
  button: "Pause training", path: "/v1/pause", body: {}, isDangerous: false,
};
const RESUME: Order = {
  title: "Train again?",
  words: "The node contributes again from the next round on.",
  button: "Resume training", path: "/v1/resume", body: {}, isDangerous: false,
};
const DRAIN: Order = {
  title: "Stop this node?",
  words: "It finishes its round, waits until the others have its last votes, and ends. This page "
    + "ends with it: somebody has to start the daemon again on its host.",
  button: "Drain and stop", path: "/v1/drain", body: {}, isDangerous: true,
};

export function Controls({ status, onDone }: { status: Status | null; onDone: () => void }) {
  const [asked, setAsked] = useState<Order | null>(null);
  const [said, setSaid] = useState("");
  const end = (isDone: boolean): void => {
    if (isDone && asked !== null) {
      setSaid(`The node has taken the order: ${asked.button.toLowerCase()}.`);
      onDone();
    }
    setAsked(null);
  };
  const isOff = status === null;
  return (
    <Card id="controls" title="Controls">
      <p class="words">
        They change this node alone, and ask for its admin token each time.
      </p>
      <div class="buttons">
        {status?.paused === true
          ? <button type="button" onClick={() => setAsked(RESUME)}>Resume</button>
          : (
            <button type="button" disabled={isOff} onClick={() => setAsked(PAUSE)}>Pause</button>
          )}
        <button type="button" class="danger" disabled={isOff} onClick={() => setAsked(DRAIN)}>
          Drain
        </button>
      </div>
      <p class="said" role="status">{said}</p>
      {asked !== null && <Confirmation asked={asked} onEnd={end} />}
    </Card>
  );
}
