/** The parts of this node: how each is, in words and by a form, and what would make it better. */

import { Card, Empty } from "./card";
import { CONDITION_WORDS, type Component } from "./components";

const MARKS = { good: "good", watch: "watch", bad: "bad" } as const;

export function HealthCard({ components }: { components: readonly Component[] }) {
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
    </Card>
  );
}
