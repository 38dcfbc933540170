/** Asks before something is done that counts, and for the admin token, which nothing keeps. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused } from "./asking";
import { isToken } from "./token";

interface Asked {
  readonly title: string;
  readonly button: string;
  readonly isDangerous?: boolean;
  readonly children: ComponentChildren;
  /** Does it; what it throws is told, and the dialog stays. */
  readonly onSubmit: (adminToken: string) => Promise<void>;
  readonly onLeave: () => void;
}

export function AskingDialog(
  { title, button, isDangerous = false, children, onSubmit, onLeave }: Asked,
) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [fault, setFault] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  useEffect(() => {
    const box = dialog.current, before = document.activeElement;
    box?.showModal();
    return () => {
      box?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
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
      await onSubmit(token);
    } catch (refused) {
      setFault(wordsOf(refused));
    }
    setIsBusy(false);
  };
  return (
    <dialog ref={dialog} aria-labelledby="asked-title" onClose={onLeave}>
      <h2 id="asked-title">{title}</h2>
      {children}
      <form onSubmit={(event) => void submit(event)} autocomplete="off">
        <label for="admin-token">Admin token</label>
        <input
          id="admin-token" name="admin-token" type="password" autocomplete="off"
          spellcheck={false} aria-describedby="admin-words admin-fault"
          aria-invalid={fault !== ""}
        />
        <p id="admin-words" class="words">
          It is in the file <code>api-admin.token</code> of the node's directory. This page forgets
          it when this closes.
        </p>
        <p id="admin-fault" class="fault" role="alert">{fault}</p>
        <div class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>Leave it</button>
          <button type="submit" class={isDangerous ? "danger" : "primary"} disabled={isBusy}>
            {button}
          </button>
        </div>
      </form>
    </dialog>
  );
}

const NOT_ADMIN = "This is not the admin token of this node: nothing was done.";

function wordsOf(fault: unknown): string {
  if (!(fault instanceof Refused)) return "The daemon does not answer: look before you try again.";
  switch (fault.status) {
    case 401:
      return NOT_ADMIN;
    case 403: // or this page is at an address that the daemon does not know for its own
      return fault.message.includes("api-admin.token") ? NOT_ADMIN : fault.message;
    case 404:
    case 405:
      return "This daemon does not take that order over HTTP: use daa-node on its host.";
    default:
      return fault.message;
  }
}
