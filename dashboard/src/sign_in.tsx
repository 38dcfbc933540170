/** For whoever comes without a token, or with one that is none any more. */

import { useState } from "preact/hooks";
import { isToken } from "./token";

export function SignIn(
  { wasRefused, onToken }: { wasRefused: boolean; onToken: (token: string) => void },
) {
  const [fault, setFault] = useState("");
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const given = String(new FormData(form).get("token") ?? "").trim();
    if (isToken(given)) onToken(given);
    else setFault("A token has 64 characters, each of them 0 to 9 or a to f.");
  };
  return (
    <main id="main" class="alone">
      <section class="card" aria-labelledby="sign-in-title">
        <h1 id="sign-in-title">
          {wasRefused ? "This token opens nothing here" : "A token opens this page"}
        </h1>
        <p class="why">
          {wasRefused
            ? "It may be of another node, or was changed since. "
            : "It keeps other programs and pages from reading how this node stands. "}
          On the host of the node, <code>daa-node dashboard</code> prints an address that has it, or
          paste what is in the file <code>api-read.token</code> of the node's directory.
        </p>
        <form onSubmit={submit} autocomplete="off">
          <label for="token">Token</label>
          <input
            id="token" name="token" type="password" autocomplete="off" spellcheck={false}
            aria-describedby="token-fault" aria-invalid={fault !== ""}
          />
          <p id="token-fault" class="fault" role="alert">{fault}</p>
          <button type="submit" class="primary">Open</button>
        </form>
      </section>
    </main>
  );
}
