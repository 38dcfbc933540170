/** Asks before something is done that counts, and for the admin token, which nothing keeps. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { order, Refused } from "./asking";
import { isToken } from "./token";

export interface Order {
  readonly title: string;
  readonly words: ComponentChildren;
  readonly button: string;
  readonly path: string;
  readonly body: object;
  readonly isDangerous: boolean;
}

/** `onEnd` hears whether it was done. */
export function Confirmation(
  { asked, onEnd }: { asked: Order; onEnd: (isDone: boolean) => void },
) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [fault, setFault] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const token = String(new FormData(form).get("admin-token") ?? "").trim();
    if (!isToken(token)) {
      setFault("A token has 64 characters, each of them 0 to 9 or a to f.");
      return;
    }
    setIsBusy(true);
    setFault("");
    try {
      await order(asked.path, token, asked.body);
      onEnd(true);
    } catch (refused) {
      setFault(wordsOf(refused));
      setIsBusy(false);
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby="asked-title" onClose={() => onEnd(false)}>
      <h2 id="asked-title">{asked.title}</h2>
      <p>{asked.words}</p>
      <form onSubmit={(event) => void submit(event)} autocomplete="off">
        <label for="admin-token">Admin token</label>
        <input
          id="admin-token" name="admin-token" type="password" autocomplete="off"
          spellcheck={false} aria-describedby="admin-words admin-fault"
          aria-invalid={fault !== ""}
        />
        <p id="admin-words" class="words">
          It is in the file <code>api-admin.token</code> of the node's directory. This page forgets
          it as soon as it has asked.
        </p>
        <p id="admin-fault" class="fault" role="alert">{fault}</p>
        <div class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>Leave it</button>
          <button
            type="submit" class={asked.isDangerous ? "danger" : "primary"} disabled={isBusy}
          >
            {asked.button}
          </button>
        </div>
      </form>
    </dialog>
  );
}

function wordsOf(fault: unknown): string {
  if (!(fault instanceof Refused)) return "The daemon does not answer: nothing was done.";
  switch (fault.status) {
    case 401:
    case 403:
      return "This is not the admin token of this node: nothing was done.";
    case 404:
    case 405:
      return "This daemon does not take that order over HTTP: use daa-node on its host.";
    default:
      return fault.message;
  }
}
