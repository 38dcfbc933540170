/** The settings: those that may change while the daemon runs, and where the others come from. */

import { useState } from "preact/hooks";
import { order } from "./asking";
import { AskingDialog } from "./asking_dialog";
import { Card, Empty } from "./card";
import type { Setting, Settings } from "./facts";
import { told, typed, wanted, type Value, type Wanted } from "./settings";
import { count } from "./words";

interface Difference {
  readonly diff: readonly { key: string; before: Value; after: Value }[];
  readonly needs_restart: readonly string[];
}

export function SettingsCard(
  { settings, onDone }: { settings: Settings | null; onDone: () => void },
) {
  const [words, setWords] = useState<Readonly<Record<string, string>>>({});
  const [isAsking, setIsAsking] = useState(false);
  const [said, setSaid] = useState("");
  if (settings === null) {
    return (
      <Card id="settings" title="Settings">
        <Empty>What the node goes by stands here, and where each of it comes from.</Empty>
      </Card>
    );
  }
  const { changes, faults } = wanted(settings.settings, words);
  const end = (isDone: boolean): void => {
    setIsAsking(false);
    onDone(); // whoever leaves it may have been told that the file says something else by now
    if (!isDone) return;
    setWords({});
    setSaid("Changed, and taken over by the running daemon.");
  };
  return (
    <Card id="settings" title="Settings">
      <p class="words">These may change while the daemon runs. An empty field sets no limit.</p>
      <form
        class="settings"
        onSubmit={(event) => {
          event.preventDefault();
          setSaid("");
          setIsAsking(true);
        }}
      >
        <div class="fields">
          {settings.settings.filter(({ reloads }) => reloads).map((setting) => (
            <Field
              key={setting.key} setting={setting} isWrong={faults.includes(setting.key)}
              words={words[setting.key] ?? typed(setting.value)}
              onWords={(text) => setWords({ ...words, [setting.key]: text })}
            />
          ))}
        </div>
        <div class="buttons">
          <button
            type="submit" disabled={faults.length > 0 || Object.keys(changes).length === 0}
          >
            See what changes
          </button>
        </div>
      </form>
      <p class="said" role="status">{said}</p>
      <Others settings={settings} />
      {isAsking && <ChangeDialog changes={changes} digest={settings.digest} onEnd={end} />}
    </Card>
  );
}

function Field(
  { setting, words, isWrong, onWords }: {
    setting: Setting; words: string; isWrong: boolean; onWords: (words: string) => void;
  },
) {
  const id = `setting-${setting.key}`;
  return (
    <div>
      <label for={id}><code>{setting.key}</code></label>
      <input
        id={id} inputMode="decimal" autocomplete="off" value={words} aria-invalid={isWrong}
        aria-describedby={`${id}-words`}
        onInput={(event) => onWords((event.currentTarget as HTMLInputElement).value)}
      />
      <small id={`${id}-words`}>
        {isWrong ? "This is no number." : `now ${told(setting.value)}, from ${setting.origin}`}
      </small>
    </div>
  );
}

function Others({ settings: { file, settings } }: { settings: Settings }) {
  const others = settings.filter(({ reloads }) => !reloads);
  return (
    <details>
      <summary>
        <span>{count(others.length, "more setting")}: a change takes a restart</span>
      </summary>
      <p class="words">In {file}</p>
      <dl class="lines scroll" tabindex={0} aria-label="Settings that take a restart">
        {others.map(({ key, value, origin }) => (
          <div key={key}>
            <dt><code>{key}</code></dt><dd>{told(value)}<small>{origin}</small></dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/**
 * First what would change, as the daemon itself says it, and only then the change: just that one,
 * for the settings that it was thought of for, whatever the page has heard since.
 */
function ChangeDialog(
  { onEnd, ...given }: {
    changes: Wanted["changes"]; digest: string; onEnd: (isDone: boolean) => void;
  },
) {
  const [{ changes, digest }] = useState(given);
  const [difference, setDifference] = useState<Difference | null>(null);
  const ask = async (adminToken: string): Promise<void> => {
    const confirm = difference !== null;
    const body = { changes, digest, confirm };
    const answer = await order<Difference>("/v1/settings", adminToken, body);
    if (confirm) onEnd(true);
    else setDifference(answer);
  };
  return (
    <AskingDialog
      title={difference === null ? "Compare with the settings in use?" : "Make this change?"}
      button={difference === null ? "Show the difference" : "Change and take over"}
      onSubmit={ask} onLeave={() => onEnd(false)}
    >
      {difference === null
        ? <p>Nothing is changed yet. The daemon says first what your changes come to.</p>
        : <DifferenceTable difference={difference} />}
    </AskingDialog>
  );
}

function DifferenceTable({ difference: { diff, needs_restart: waiting } }: {
  difference: Difference;
}) {
  return (
    <>
      <table class="difference">
        <thead>
          <tr><th scope="col">Setting</th><th scope="col">Now</th><th scope="col">Then</th></tr>
        </thead>
        <tbody>
          {diff.map(({ key, before, after }) => (
            <tr key={key}>
              <th scope="row"><code>{key}</code></th>
              <td><del>{told(before)}</del></td><td><ins>{told(after)}</ins></td>
            </tr>
          ))}
        </tbody>
      </table>
      {waiting.length > 0 && (
        <p>Waits for a restart, as the file says it already: {waiting.join(", ")}.</p>
      )}
    </>
  );
}
