/** The parts of this node: how each is, in words and by a form, and what would make it better. */

import type { Trouble } from "./advice";
import { Card, Empty } from "./card";
import { CONDITION_WORDS, type Component } from "./components";

const MARKS = { good: "good", watch: "watch", bad: "bad" } as const;

export function HealthCard(
  { components, troubles }: { components: readonly Component[]; troubles: readonly Trouble[] },
) {
  const wrong = components.filter(({ condition }) => condition === "bad").length;
  const watched = components.filter(({ condition }) => condition === "watch").length;
  const aside = components.length === 0 ? undefined
    : wrong > 0 ? `${wrong} wrong` : watched > 0 ? `${watched} worth a look` : "all is fine";
  return (
    <Card id="health" title="Health of this node" aside={aside}>
      {components.length === 0
        ? <Empty>How each part of the node is, and what would make it better.</Empty>
        : (
          <ul class="parts">
            {components.map(({ name, condition, words, remedy }) => (
              <li key={name}>
                <p>
                  <span class={`mark ${MARKS[condition]}`}>
                    <span class="unseen">{CONDITION_WORDS[condition]}: </span><b>{name}</b>
                  </span>
                  <span class="what">{words}</span>
                </p>
                {remedy !== "" && <p class="words">{remedy}</p>}
              </li>
            ))}
          </ul>
        )}
      {troubles.length > 0 && (
        <>
          <h3>Lately in the log</h3>
          <ul class="parts" aria-label="Lately in the log">
            {troubles.map(({ name, times, means, remedy }) => (
              <li key={means}>
                <p>
                  <b>{name}</b>
                  <span class="what">{times > 1 ? `${times} times` : "once"}</span>
                </p>
                <p class="words">{means} What to do: {remedy}</p>
              </li>
            ))}
          </ul>
        </>
      )}
    </Card>
  );
}
